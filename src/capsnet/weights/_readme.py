"""The model card of a repository on the hub: README.md, its first lines in YAML for the hub's search and result tables.

Everything in it comes from the file of weights. Paths of the machine that trained the model are left out.
"""

from typing import Any

from capsnet import data
from capsnet.drawing.document import Code, Document, Heading, Table
from capsnet.metrics import Proportion
from capsnet.models import Model, describe
from capsnet.weights._hub import Address, library

MOST_CLASSES = 50  # that are named


def model_card(model: Model, address: Address, license: str) -> str:
    """The text of README.md."""
    kind = "text" if model.takes_texts else "image"
    task = f"{kind}-classification"
    hub, name = library(), address.repository.partition("/")[2]
    tests = _tests(model.card)
    header = hub.ModelCardData(
        license=license,
        library_name="capsnet",
        pipeline_tag=task,
        tags=_tags(model, task),
        model_name=name,
        metrics=["accuracy"] if tests else None,
        eval_results=[_result(hub, task, spec, share) for spec, share in tests.items()] or None,
    )
    return f"---\n{header.to_yaml()}\n---\n\n{_body(model, address, name, tests).to_markdown()}"


def _tags(model: Model, task: str) -> list[str]:
    routing = model.class_routing
    return ["capsnet", "capsule-network", "pytorch", task, *([f"{routing.name}-routing"] if routing else [])]


def _tests(card: dict[str, Any]) -> dict[str, Proportion]:
    """What was measured on test splits, by data set."""
    tests = card.get("tests") or (
        {card.get("data", "unknown"): card["test_accuracy"]} if "test_accuracy" in card else {}
    )
    return {_public(spec): Proportion(**share) for spec, share in tests.items()}


def _public(spec: str) -> str:
    """A data set without the path of somebody's folder."""
    try:
        return spec if data.path_of(spec) is None else spec.partition(":")[0]
    except ValueError:  # of a plugin that is not here, or given in Python
        return spec.partition(":")[0]


def _result(hub: Any, task: str, spec: str, share: Proportion) -> Any:
    return hub.EvalResult(
        task_type=task,
        dataset_type=spec.partition(":")[0],
        dataset_name=spec,
        dataset_split="test",
        metric_type="accuracy",
        metric_name=f"accuracy, 95 % interval {share.low:.4f} to {share.high:.4f}, n = {share.n}",
        metric_value=round(share.value, 6),
    )


def _body(model: Model, address: Address, name: str, tests: dict[str, Proportion]) -> Document:
    card, routing, repository = model.card, model.class_routing, str(Address(address.repository))
    network = model.config["name"]
    names = model.class_names[:MOST_CLASSES]
    more = f" and {model.num_classes - len(names)} more" if model.num_classes > len(names) else ""
    height, width = model.image_size
    takes = "texts" if model.takes_texts else f"any picture, brought to {height} x {width} pixels"
    trained = card.get("trained_on", card.get("data"))
    trained = f"{_public(trained['data'])}, split {trained['split']}" if isinstance(trained, dict) else trained
    origin = card.get("origin", {})
    rows = {
        "network": f"`{network}`: {describe(network)}",
        "parameters": f"{model.num_parameters():,}",
        "takes": takes,
        "classes": f"{model.num_classes}: {', '.join(names)}{more}",
        "routing": f"`{routing.name}`" if routing else None,
        "trained on": trained and _public(trained),
        **{f"test accuracy, {spec}": str(share) for spec, share in tests.items()},
        "seed": card.get("seed"),
        "versions": ", ".join(f"{key} {origin[key]}" for key in ("capsnet", "torch") if key in origin) or None,
    }
    summary = card.get("summary")
    what = "a text" if model.takes_texts else "photo.jpg"
    page = Document(card.get("title", name))
    page.add(f"{summary[0].upper()}{summary[1:]}." if summary else "A capsule network.")
    page.add(Table("", ["", ""], [[key, str(value)] for key, value in rows.items() if value is not None]))
    page.add(Heading("Use"), Code("pip install 'capsnet[hub]'"))
    page.add(f'```python\nimport capsnet\n\nmodel = capsnet.load("{repository}")\n'
             f'print(capsnet.predict("{what}", model))\n```')  # fmt: skip
    page.add(Code(f'capsnet predict "{what}" --model {repository}\ncapsnet info {repository}'))
    return page.add(
        "`model.safetensors` holds the network's configuration, class names, preprocessing and origin. Loading it runs "
        "no code, and its digest is checked."
    )
