"""Is what a job left behind sound?"""
