"""Checkpoints of other projects to releases. Nothing in a checkpoint is ever executed.

checkpoint   file -> tensors under bare dotted names
sources      tensors -> backbone, projector, predictor and target, one function for each project
backbone     which of them are the backbone's, under timm's names
stem         what the first layers do with an image, which shapes do not tell
heads        the projector and predictor of another project as those of a recipe
importing    all of it: file and recipe -> release folder
"""
