"""Whole networks, and the registry of their names."""

from capsnet.models._binding import Binding, BindingModel
from capsnet.models._decoding import DecodingModel
from capsnet.models._outline import outline
from capsnet.models._placing import child_centres, child_owners
from capsnet.models._registry import create_model, describe, list_models, model_options, register
from capsnet.models._scoring import ScoringModel
from capsnet.models.akorn import AKOrN, OscillatorModel
from capsnet.models.akorn_pyramid import AKOrNPyramid
from capsnet.models.base import Loss, Margins, Model, Output, ReceptiveField
from capsnet.models.capsnet import CapsNet
from capsnet.models.cnn import CNN
from capsnet.models.complex_cnn import ComplexCNN
from capsnet.models.efficient import EfficientCapsNet
from capsnet.models.ensemble import Ensemble, rebuild
from capsnet.models.image import ImageCapsNet
from capsnet.models.image_cnn import ImageCNN
from capsnet.models.matrix import MatrixCapsNet
from capsnet.models.pathnet import PathNet
from capsnet.models.rerouting import replacements, reroute
from capsnet.models.residual import ResidualCapsNet, ResidualCNN
from capsnet.models.rotating import RotatingAutoencoder
from capsnet.models.text import TextCapsNet, TextCNN, TextModel

register("capsnet", CapsNet, "the paper's network: conv 9x9x256, 1152 primary capsules, dynamic routing, decoder")
register(
    "capsnet-small",
    CapsNet,
    "the paper's network with 64 channels and 8 types of capsules instead of 256 and 32: for a CPU",
    conv_channels=64,
    primary_types=8,
    decoder_widths=(256, 512),
)
register(
    "baseline-cnn", CNN, "the paper's baseline: three 5x5 convolutions without pooling, 35.4 M parameters", init="he"
)
register(
    "cnn-small",
    CNN,
    "a small convolutional network with pooling, 0.7 M parameters like capsnet-small without its decoder",
    channels=(32, 64, 128),
    widths=(328, 192),
    pool=True,
)
register(
    "efficient-capsnet",
    EfficientCapsNet,
    "Efficient-CapsNet: 16 primary capsules, self-attention routing, 161,824 parameters before the decoder",
)
register(
    "efficient-cnn",
    CNN,
    "the convolutions of efficient-capsnet with a linear layer instead of capsules",
    channels=(32, 64, 64, 128),
    kernel_sizes=(5, 3, 3, 3),
    strides=(1, 1, 1, 2),
    widths=(),
    batch_norm=True,
    padded=False,
    dropout=0.0,
    init="he",
)
register(
    "residual-capsnet",
    ResidualCapsNet,
    "capsules on a residual stem, self-attention routing, decoder: for small pictures",
)
register(
    "residual-cnn",
    ResidualCNN,
    "the stem of residual-capsnet with linear layers instead of capsules, as many parameters",
)
register(
    "capsnet-image", ImageCapsNet, "capsules on a residual stem, convolutional decoder: for photos up to 224 x 224"
)
register(
    "cnn-image", ImageCNN, "the stem of capsnet-image with pooling and linear layers instead of capsules, as large"
)
register("matrix-capsnet", MatrixCapsNet, "matrix capsules: 4x4 poses, convolutional capsules, EM routing, full width")
register(
    "matrix-capsnet-small",
    MatrixCapsNet,
    "matrix capsules with EM routing and 8 types of capsules per layer instead of 32: for a CPU",
    widths=(32, 8, 8, 8),
)
register("akorn-small", AKOrN, "layers of oscillators that settle under the image; their readouts tell the class")
register(
    "akorn-pyramid",
    AKOrNPyramid,
    "oscillators at three scales on the stem of residual-cnn: phases say which pixel belongs to which object",
)
register(
    "rotating-small",
    RotatingAutoencoder,
    "an autoencoder of rotating features: lengths say what there is, directions to which object it belongs",
)
register("complex-cnn-small", ComplexCNN, "a small convolutional network of complex numbers")
register(
    "decoupled-cnn-small",
    CNN,
    "cnn-small with decoupled convolutions: how strong a patch is and how well it fits, each by its own function",
    channels=(32, 64, 128),
    widths=(328, 192),
    pool=True,
    length="tanh",
)
register("pathnet", PathNet, "layers of reusable modules, and a path through them for each task")
register("text-capsnet", TextCapsNet, "for texts of any length: n-grams as capsules, routed by shared matrices")
register(
    "text-cnn", TextCNN, "for texts of any length: n-grams, max-pooled over the text, and a linear layer, no capsules"
)

__all__ = [
    "CNN",
    "AKOrN",
    "AKOrNPyramid",
    "Binding",
    "BindingModel",
    "CapsNet",
    "ComplexCNN",
    "DecodingModel",
    "EfficientCapsNet",
    "Ensemble",
    "ImageCNN",
    "ImageCapsNet",
    "Loss",
    "Margins",
    "MatrixCapsNet",
    "Model",
    "OscillatorModel",
    "Output",
    "PathNet",
    "ReceptiveField",
    "ResidualCNN",
    "ResidualCapsNet",
    "RotatingAutoencoder",
    "ScoringModel",
    "TextCNN",
    "TextCapsNet",
    "TextModel",
    "child_centres",
    "child_owners",
    "create_model",
    "describe",
    "list_models",
    "model_options",
    "outline",
    "rebuild",
    "register",
    "replacements",
    "reroute",
]
