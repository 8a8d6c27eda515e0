"""DeepSeek-V4 in Paddle: model, training loop, alignment. Stands alone."""
