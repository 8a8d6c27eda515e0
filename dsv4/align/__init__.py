"""Alignment: the only place that compares bits and counts ulps. Works without Paddle."""
