"""Models as programs that need none of this package: ONNX, ``torch.export`` and TorchScript, each checked.

| stage | file | from → to |
|---|---|---|
| what is written | ``program`` | a model's name, features or a head → a module with named outputs |
| how | ``formats`` | that module → a file, and the file → something that runs |
| whether it is right | ``parity`` | both on the same pictures → the greatest difference |
| what it is | ``about`` | the model → its input, outputs, licence and lineage as JSON |
| all of it | ``export`` | the public function |
"""
