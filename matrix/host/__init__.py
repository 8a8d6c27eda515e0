"""This host: its cards, leases on them, supervisors of process trees."""
