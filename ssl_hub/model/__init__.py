"""The method itself: backbone, projector, predictor, target and their composition. Torch only, no training."""
