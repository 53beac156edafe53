"""Capsules for texts, and a convolutional network to compare with.

Zhao et al., *Investigating capsule networks with dynamic routing for text classification*, EMNLP 2018
(arXiv 1804.00538); Kim, *Convolutional neural networks for sentence classification*, EMNLP 2014 (arXiv 1408.5882).

A text is a row of word numbers (B, L), integers, 0 being padding, which does not change the answer. The number of words
is free; ``image_size`` = (1, L) only records the data's longest text.
"""

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from capsnet import functional as F
from capsnet.layers import Capsules, SharedCaps
from capsnet.models._decoding import DecodingModel
from capsnet.models._scoring import ScoringModel
from capsnet.models.base import Count, Model, Output, build_routing


class NGrams(nn.Module):
    """Embeddings and one convolution per n: features of the n words that begin at each word.

    The text is followed by n - 1 zero vectors, so that each word begins an n-gram of every size.

    Shapes: words (B, L) -> features (B, L, S, C) for S sizes, not negative, arbitrary where the word is padding.
    """

    def __init__(self, vocabulary: int, embedding: int, sizes: tuple[int, ...], channels: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(embedding, channels, size) for size in sizes)
        self.sizes = sizes

    def forward(self, words: Tensor) -> Tensor:
        vectors = self.embedding(words).transpose(1, 2)  # (B, E, L)
        grams = [conv(nn.functional.pad(vectors, (0, n - 1))) for n, conv in zip(self.sizes, self.convs, strict=True)]
        return torch.stack(grams, dim=1).relu().permute(0, 3, 1, 2)  # (B, L, S, C)


class TextModel(Model):
    """Base class of models that take word numbers (B, L) instead of images.

    ``vocabulary`` is the number of words, padding and unknown included; ``preprocessing`` holds the words.
    """

    takes_texts = True

    def __init__(
        self,
        image_size: tuple[Count, Count],
        in_channels: Count,
        num_classes: Count,
        vocabulary: Count,
        embedding: Count,
        ngrams: tuple[Count, ...],
        channels: Count,
    ) -> None:
        super().__init__(image_size, in_channels, num_classes)
        if image_size[0] != 1 or in_channels != 1:
            shape = f"{in_channels} x {image_size[0]} x {image_size[1]}"
            raise ValueError(f"a text is one row of words, image_size (1, L) and in_channels 1: it cannot be {shape}")
        if not ngrams:
            raise ValueError("ngrams must name at least one size, such as (2, 3, 4)")
        self.vocabulary = vocabulary
        self.ngrams = NGrams(vocabulary, embedding, ngrams, channels)

    def example_inputs(self, count: int) -> Tensor:
        """Random words; every other text ends in padding."""
        words = torch.randint(1, self.vocabulary, (count, self.image_size[1]))
        words[1::2, words.shape[1] // 2 :] = 0
        return words

    def check_images(self, images: Tensor) -> None:
        """Refuse what is not a batch of word numbers, in one sentence."""
        if images.ndim != 2 or images.shape[1] < 1:
            raise ValueError(f"expected the word numbers of texts, shape (B, L), got {tuple(images.shape)}")
        if images.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"expected word numbers as integers (int64), got {images.dtype}")
        if not torch.compiler.is_compiling() and images.numel():
            low, high = int(images.min()), int(images.max())
            if low < 0 or high >= self.vocabulary:
                wrong = low if low < 0 else high
                raise ValueError(f"there is no word number {wrong}: the model knows words 0 to {self.vocabulary - 1}")


class TextCapsNet(TextModel, DecodingModel):
    """N-grams as capsules, as many as the text has words, routed to one capsule per class by shared matrices.

    Each word's n-grams of each size become ``primary_types`` capsules; the matrices depend on the class only
    (``layers.SharedCaps``), so that texts may have any length. Each class has its own length, so a network trained on
    texts with one topic can find several.

    Args:
        image_size, in_channels: (1, L) and 1: see ``TextModel``.
        num_classes: any.
        vocabulary: how many word numbers there are.
        embedding: numbers per word.
        ngrams: how many words are read together, one convolution per size.
        channels: of each convolution.
        routing: name of the routing between n-grams and classes.
        iterations: its number of iterations; None leaves the routing's own default.
        routing_options: the routing's other hyper-parameters, e.g. ``{"leaky": True}``.
    """

    decoder, reconstruction_weight = None, 0.0

    def __init__(
        self,
        image_size: tuple[Count, Count] = (1, 24),
        in_channels: Count = 1,
        num_classes: Count = 8,
        vocabulary: Count = 1000,
        embedding: Count = 64,
        ngrams: tuple[Count, ...] = (2, 3, 4),
        channels: Count = 64,
        primary_types: Count = 2,
        primary_dim: Count = 8,
        pose_dim: Count = 16,
        routing: str = "dynamic",
        iterations: Count | None = None,
        routing_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(image_size, in_channels, num_classes, vocabulary, embedding, ngrams, channels)
        self.primary_types = primary_types
        self.primary_dim = primary_dim
        self.pose_dim = pose_dim
        self.primary = nn.Linear(channels, primary_types * primary_dim)
        route = build_routing(routing, iterations, None, routing_options)
        self.classes = SharedCaps(num_classes, primary_dim, pose_dim, route)

    def forward_features(self, images: Tensor) -> Capsules:
        """The n-grams' capsules; their presence is 1, and 0 where a word is padding."""
        self.check_images(images)
        numbers = self.primary(self.ngrams(images))  # (B, L, S, types * dim)
        types = numbers.shape[2] * self.primary_types
        B, L = images.shape
        children = F.squash(numbers.reshape(B, L * types, self.primary_dim))
        return Capsules(children, (images != 0).repeat_interleave(types, dim=1).to(children.dtype))

    def forward(self, images: Tensor, labels: Tensor | None = None, trace: bool = False) -> Output:
        children, presence = self.forward_features(images)
        assert presence is not None
        poses, lengths, history = self.classes(children, mask=presence.bool(), trace=trace)  # (B, J, D), (B, J)
        L = images.shape[1]
        grid = None if history is None else history._replace(grid=(1, L, children.shape[1] // L))
        return Output(lengths=lengths, poses=poses, trace=grid)


class TextCNN(TextModel, ScoringModel):
    """The same n-grams, max-pooled over the text, dropout, class scores. ``multi_label`` as in ``ScoringModel``."""

    def __init__(
        self,
        image_size: tuple[Count, Count] = (1, 24),
        in_channels: Count = 1,
        num_classes: Count = 8,
        vocabulary: Count = 1000,
        embedding: Count = 64,
        ngrams: tuple[Count, ...] = (2, 3, 4),
        channels: Count = 64,
        dropout: Annotated[float, Field(ge=0, lt=1)] = 0.5,
        multi_label: bool = False,
    ) -> None:
        super().__init__(image_size, in_channels, num_classes, vocabulary, embedding, ngrams, channels)
        self.multi_label = multi_label
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(len(ngrams) * channels, num_classes))

    def forward_features(self, images: Tensor) -> Tensor:
        """The features, max-pooled over the text, (B, S * C)."""
        self.check_images(images)
        features = self.ngrams(images).flatten(2)  # (B, L, S * C), not negative, so padding may be 0
        return features.masked_fill((images == 0).unsqueeze(-1), 0).amax(dim=1)
