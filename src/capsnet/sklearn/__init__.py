"""A network of this package as a scikit-learn estimator (extra ``sklearn``)."""

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError:
    raise ImportError("capsnet.sklearn needs scikit-learn: pip install 'capsnet[sklearn]'") from None

from capsnet.sklearn._classifier import CapsNetClassifier

__all__ = ["CapsNetClassifier"]
