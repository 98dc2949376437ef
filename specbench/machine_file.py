"""What is where on a machine, kept out of params files: engines by version, models by name. In: YAML. Out: `Places`.

    engines:
      "0.5.12": {python: /opt/sglang-0.5.12/bin/python}
      "0.5.16": {python: /opt/sglang-0.5.16/bin/python, env: {CUDA_HOME: /usr/local/cuda-13.0}}
    models:
      Qwen/Qwen3.6-27B: /data/models/Qwen3.6-27B      # a folder: config.json, tokenizer, processor, weights

What such a folder needs (SGLang 0.5.12 and 0.5.16, model_loader/loader.py, managers/tp_worker.py): with `--load-format
dummy` weights are random, and none are read; a draft's tokenizer is never opened.

`place` fills `engine.python`, `engine.env` and `engine.model_paths` of a configuration: what its params file states
stays as stated. The same params file then runs on every machine, and a record keeps the names by which models are known
together with the paths that were used. Values are taken as they are: nothing in them is expanded or evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pydantic import Field, ValidationError

from .configuration.config import RunConfig, Section, Text
from .configuration.explain import listed, near_miss, problem_text
from .configuration.secret_names import refuse_secret_variables
from .configuration.yamltext import read_mapping
from .errors import ConfigError
from .params import Campaign
from .paths import expanded, folder_or_name, resolve
from .specs import shipped_folder

#: Files of which a tokenizer has at least one (transformers).
_TOKENIZERS = ("tokenizer*", "vocab.*", "*.tiktoken")
#: What an engine reads of a model, in words.
MODEL_FOLDER = (
    "a folder with config.json, the files of tokenizer and processor (a draft needs config.json alone), and weights, "
    "which engine.args.load-format: dummy does without"
)


class EnginePlace(Section):
    python: Text | None = Field(None, description="the interpreter that has this version; when left out: this one")
    env: dict[str, str] = Field({}, description="a mapping of environment variables for servers of this version")


class Places(Section):
    engines: dict[str, EnginePlace] = Field({}, description="a mapping of engine version to where it is")
    models: dict[Text, Text] = Field({}, description="a mapping of model name to the folder that holds it")


def read_places(path: str | Path, *, of_another_machine: bool = False) -> Places:
    """The places of a machine file. ConfigError (two lines): what is wrong in it, or a folder that is not there, unless
    the file may be that of another machine: then see `unready`.
    """
    file = resolve(path, kind="--machine")
    data = read_mapping(file, expected="the keys engines and models")
    try:
        places = Places.model_validate({key: {} if value is None else value for key, value in data.items()})
    except ValidationError as error:
        raise ConfigError(problem_text(error.errors(include_url=False)[0], Places, file.name)) from None
    for version, engine in places.engines.items():
        refuse_secret_variables(engine.env, f"{file.name}: engines.{version}.env")
    folders: dict[str, str] = {}
    for name, given in places.models.items():
        folder = file.parent / expanded(Path(given))
        if not folder.is_dir() and not of_another_machine:
            raise ConfigError(
                f"{file.name}: models: {name}: {given!r:.200} is no folder on this machine.\nExpected {MODEL_FOLDER}."
            )
        folders[name] = str(folder.resolve() if folder.is_dir() else folder.absolute())
    return Places(engines=places.engines, models=folders)


def unready(configs: Iterable[RunConfig], places: Places, where: str = "--machine") -> tuple[str, ...]:
    """Folders of models from which no server starts: not on this machine, or without what it reads first."""
    targets = {config.model for config in configs}
    told = []
    for name, folder in places.models.items():
        at = Path(folder)
        if not at.is_dir():
            instead = "its shipped config.json stands in" if shipped_folder(name) else "nothing of it can be checked"
            why = f"no folder {folder} on this machine; {instead}"
            told.append(f"run refuses this here: {where}: models: {name}: {why}")
        elif not (at / "config.json").is_file():
            told.append(f"{where}: models: {name}: {folder} has no config.json: the server will not start")
        elif name in targets and not any(any(at.glob(pattern)) for pattern in _TOKENIZERS):
            told.append(f"{where}: models: {name}: {folder} has no tokenizer: the server will not start")
    return tuple(told)


def doubts(configs: Iterable[RunConfig], places: Places, where: str = "--machine") -> tuple[str, ...]:
    """Names of models that nothing uses, while a model that is used has no folder: one of them is misspelt."""
    starts = [config for config in configs if config.engine.replay is None and config.engine.attach is None]
    known = {name for config in starts for name in config.engine.model_paths}
    used = {name for config in starts for name in (config.model, config.speculative.draft_model_path) if name}
    lacking = sorted(name for name in used - known - set(places.models) if not Path(folder_or_name(name)).is_dir())
    if not lacking:
        return ()
    return tuple(
        f"{where}: models: {name}: no configuration uses it{near_miss(name, lacking)}; without a folder, so that the "
        f"server would ask the Hub: {listed(lacking)}"
        for name in places.models
        if name not in used
    )


def placed(campaign: Campaign, machine: str | Path | None) -> Campaign:
    """The campaign with the places of a machine file in every configuration; as it is without such a file."""
    if machine is None:
        return campaign
    places, where = read_places(machine), Path(machine).name
    return replace(campaign, runs=tuple(place(config, places, where) for config in campaign.runs))


def place(config: RunConfig, places: Places, where: str = "--machine") -> RunConfig:
    """`config` with what this machine has: what starts no engine stays as it is.

    ConfigError (two lines): no engine of the version that is asked for.
    """
    engine = config.engine
    if engine.replay is not None or engine.attach is not None:
        return config
    known = places.engines.get(engine.version)
    if known is None and places.engines and engine.python is None:
        raise ConfigError(
            f"{where}: engines: no {engine.version}, which {config.name} needs; there is {listed(places.engines)}.\n"
            "Add where it is, or set engine.version to one that is there."
        )
    found = known or EnginePlace()
    used = (config.model, config.speculative.draft_model_path)
    models = {name: folder for name, folder in places.models.items() if name in used}
    filled: dict[str, object] = {
        "engine.python": engine.python or found.python,
        "engine.env": {**found.env, **engine.env},
        "engine.model_paths": {**models, **engine.model_paths},
    }
    return config.replace({key: value for key, value in filled.items() if value})
