"""Checkpoints of other projects to releases. Nothing in a checkpoint is ever executed.

content      file -> what is in it, whatever kind it is
checkpoint   that -> tensors under bare dotted names
stated       what is said of the model beside its tensors: its architecture, how images came in
unsafe       what to say of a file that cannot be read so
project      what is known of a project's checkpoints, and how they are told apart
sources      tensors -> backbone, projector, predictor and target, one function for each project
renaming     backbones whose projects call the layers otherwise (efficientnet: by counting them)
backbone     which of them are the backbone's, under timm's names
stem         what the first layers do with an image, which shapes do not tell
heads        the projector and predictor of another project as those of a recipe
reading      file -> tensors by role, and into a model
importing    all of it: file and recipe -> release folder
"""
