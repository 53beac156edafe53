"""Every attack by name: one list for the tests and for ``python -m tests.hostile``."""

from tests.hostile import attacks, onnx_files
from tests.hostile.attacks import Attack

ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        attacks.damaged_weights, attacks.forged_weights, attacks.damaged_picture, attacks.wrong_config,
        attacks.damaged_checkpoint, attacks.damaged_data, onnx_files.damaged_onnx, onnx_files.forged_onnx,
    )
}  # fmt: skip
