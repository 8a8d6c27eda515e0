"""Losses, times and memory against recorded ones."""
