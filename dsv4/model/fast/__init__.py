"""The fast path: the same functions as the plain one, equal to rounding, with hand-written gradients.

No tensor here grows with S²: attention goes by query blocks over their window, the chosen compressed entries and the
sink; the indexer scores in query blocks; tokens are sorted by expert. HCA's S·S/128 is in the nature of the layer.
"""
