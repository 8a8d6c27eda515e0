"""Paddle reads its environment when it is first imported: set it before any test module does."""

from dsv4.numerics.env import prepare

prepare()
