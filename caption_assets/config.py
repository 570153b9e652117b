"""The models of caption_assets.yaml: what may be written there.

Everything else receives these objects; only configfile.py reads the file and the environment. Importing this module costs
pydantic only (Dagster has it loaded already).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from caption_assets import configchecks
from caption_assets.configerrors import ConfigError, describe_error
from caption_assets.core.columns import RESERVED_OUTPUT_NAMES

ExportFormat = Literal["webdataset", "parquet", "hf", "imagefolder", "jsonl", "csv", "txt", "json", "lance", "webshart"]
EXPORT_FORMATS: tuple[str, ...] = get_args(ExportFormat)


Name = Annotated[str, AfterValidator(configchecks.name)]
Source = Annotated[str, AfterValidator(lambda value: configchecks.place(value, ("s3", "hf")))]
Store = Annotated[str, AfterValidator(lambda value: configchecks.place(value, ("s3",)))]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _no_booleans(cls, values: Any) -> Any:
        configchecks.no_booleans(values, [name for name, field in cls.model_fields.items() if field.annotation in (int, float)])
        return values


class BucketConfig(_Model):
    """How one bucket is reached. Secrets stay in the environment or the profile, never in this file."""

    endpoint_url: Annotated[str | None, AfterValidator(configchecks.server)] = None
    region: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    access_grants: bool = False
    requester_pays: bool = False
    anonymous: bool = False


class S3Config(BucketConfig):
    buckets: dict[str, BucketConfig] = Field(default_factory=dict)

    def for_bucket(self, bucket: str) -> BucketConfig:
        """The bucket's settings: its own entry over the general ones."""
        general = {k: getattr(self, k) for k in BucketConfig.model_fields}
        own = self.buckets.get(bucket)
        return BucketConfig(**{**general, **(own.model_dump(exclude_unset=True) if own else {})})


class FieldsConfig(_Model):
    """Names in catalogs; a dotted name reaches into nested records."""

    id: str = "id"
    uri: str = "uri"
    text: str = "caption"


class GridConfig(_Model):
    rows: int = Field(2, ge=1, le=8)
    cols: int = Field(2, ge=1, le=8)
    cell_size: int = Field(1024, ge=16, le=4096, description="pixels, width and height of a cell")
    gap: int = Field(12, ge=0, le=256, description="pixels around and between cells")
    label_font_size: int = Field(52, ge=0, le=512, description="pixels; 0 draws no numbers")
    format: Literal["webp", "jpeg", "png"] = "webp"
    quality: int = Field(90, ge=1, le=100)
    keep: Literal["always", "until_merged"] = "always"

    @property
    def single(self) -> bool:
        """1x1: no grids are made, pictures are sent from the source."""
        return self.rows * self.cols == 1

    @model_validator(mode="after")
    def _encodable(self) -> GridConfig:
        longest = max(self.rows, self.cols) * (self.cell_size + self.gap) + self.gap
        limit = {"webp": 16383, "jpeg": 65500, "png": 65500}[self.format]
        if longest > limit and not self.single:
            raise ValueError(f"a side would be {longest} pixels, {self.format} allows {limit}; lower rows, cols or cell_size")
        return self


class ImagesConfig(_Model):
    longest_side: int = Field(1024, ge=16, le=16384, description="pixels; larger pictures are scaled down before sending")
    max_pixels: int = Field(179_000_000, ge=1, description="larger pictures are refused before they are decoded")
    max_bytes: int = Field(104_857_600, ge=1, description="larger files are not read")
    http: bool = Field(False, description="whether a catalog may name http(s) addresses; only public ones are read")
    local_roots: list[str] = Field(default_factory=list, description="folders a local catalog may name besides its source's")
    s3_buckets: list[str] = Field(default_factory=list, description="buckets a catalog may name besides its source's")


class SamplingConfig(_Model):
    temperature: float = Field(0.7, ge=0, le=2)
    top_p: float = Field(0.95, gt=0, le=1)
    max_tokens: int = Field(256, ge=1, description="tokens per caption; a grid gets this many per filled cell")
    repetition_penalty: float = Field(1.05, gt=0, le=2)
    seed: int = Field(0, ge=-configchecks.LARGEST_SEED, le=configchecks.LARGEST_SEED)
    stop: list[str] = Field(default_factory=list)


class FiltersConfig(_Model):
    min_chars: int = Field(10, ge=0)
    max_chars: int = Field(4000, ge=1)
    language: str | None = Field(None, pattern="^[a-z]{2}$", description="ISO 639-1 code, such as en")
    refusals: bool = True
    repetition: bool = True
    prompt_echo: bool = True
    boilerplate: bool = True
    duplicate_captions: bool = True

    @model_validator(mode="after")
    def _possible(self) -> FiltersConfig:
        configchecks.in_order(("min_chars", self.min_chars), ("max_chars", self.max_chars))
        return self


class PromptConfig(_Model):
    """One prompt makes one output column of its name."""

    name: Name = "caption"
    text: str = Field(min_length=1, pattern=r"\S", description="what the model is asked")
    version: int = 1
    image: bool = Field(True, description="false: a text-only stage, one plain-text request per record")
    sampling: dict[str, Any] = Field(default_factory=dict, description="overrides of the dataset's sampling")
    filters: dict[str, Any] = Field(default_factory=dict, description="overrides of the dataset's filters")

    @field_validator("name")
    @classmethod
    def _not_a_column(cls, value: str) -> str:
        if value in RESERVED_OUTPUT_NAMES or value.endswith(("_reason", "_info")):
            raise ValueError("is the name of another column of merged; choose another")
        return value

    @property
    def uses(self) -> tuple[str, ...]:
        """Names of the outputs its text refers to."""
        return tuple(dict.fromkeys(re.findall(r"\{output\.([^{}\s]+)\}", self.text)))


class RetriesConfig(_Model):
    attempts: int = Field(2, ge=1, le=20, description="of a grid without a good cell, or of a single picture")
    split_grids: bool = Field(True, description="bad cells of grids are asked once more, singly, from the source")


class ChecksConfig(_Model):
    coverage_warn: float = Field(0.98, ge=0, le=1, description="share of a shard's records with a caption")
    coverage_error: float = Field(0.9, ge=0, le=1, description="share of a shard's records with a caption")

    @model_validator(mode="after")
    def _in_order(self) -> ChecksConfig:
        configchecks.in_order(("coverage_error", self.coverage_error), ("coverage_warn", self.coverage_warn))
        return self


class SensorConfig(_Model):
    enabled: bool = False
    interval_s: int = Field(300, ge=5, description="seconds between looks at the source")
    min_new_files: int = Field(1, ge=1, description="so many are waited for before they are planned")
    max_wait_s: int = Field(86_400, ge=0, description="seconds after which fewer are planned, too")
    settle_s: int = Field(60, ge=0, description="seconds a file must have been left alone: younger ones may still be growing")


class AutomationConfig(_Model):
    prepare: bool = Field(False, description="manifest and grids of new shards are made by themselves; nothing on the GPU is")


class IndexConfig(_Model):
    max_rows: int = Field(50_000_000, ge=0, description="above it captions.duckdb holds views over the parquet")


class EngineConfig(_Model):
    kind: Literal["vllm", "openai", "batch"] = "vllm"
    model: str = Field("Qwen/Qwen2.5-VL-3B-Instruct", min_length=1, description="a hub name, a folder, or demo")
    revision: str | None = None
    replicas: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    endpoints: Annotated[list[str], AfterValidator(configchecks.endpoints)] = Field(default_factory=list)
    api_key_env: Annotated[str | None, AfterValidator(configchecks.environment_name)] = None
    concurrency: int = Field(64, ge=1, le=4096, description="requests in flight per endpoint, over all shards of a machine")
    request_timeout_s: float = Field(300, gt=0, description="seconds from sending a request to the end of its reply")
    idle_stop_s: float = Field(900, ge=0, description="kind vllm: seconds without a request after which a server stops")
    trust_remote_code: bool = False
    server_args: Annotated[dict[str, Any], AfterValidator(configchecks.server_args)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _openai_needs_endpoints(self) -> EngineConfig:
        if self.kind == "openai" and not self.endpoints:
            raise ValueError("kind: openai needs endpoints, such as [http://127.0.0.1:8000/v1]")
        return self


class ResourcesConfig(_Model):
    """Asked of a cluster per asset."""

    cpus: float = Field(1, gt=0)
    memory_gb: float | None = Field(None, gt=0)
    gpus: float | None = Field(None, ge=0, description="null: what the engine's servers take, for captions and recaptions")


StepName = Literal["manifest", "concat_grids", "captions", "recaptions", "merged"]


def _default_resources() -> dict[StepName, ResourcesConfig]:
    return {"concat_grids": ResourcesConfig(cpus=8, memory_gb=20), "captions": ResourcesConfig()}


class DatasetConfig(_Model):
    name: Name
    source: list[Source] = Field(min_length=1)
    format: Literal["auto", "webdataset", "jsonl", "parquet", "images"] = "auto"
    fields: FieldsConfig = FieldsConfig()
    shard_size: int = Field(100_000, ge=1, description="records per shard, for catalogs and folders")
    group_tars: int = Field(1, ge=1, description="neighbouring tars per shard")
    grid: GridConfig = GridConfig()
    images: ImagesConfig = ImagesConfig()
    prompts: list[PromptConfig] = Field(min_length=1)
    sampling: SamplingConfig = SamplingConfig()
    filters: FiltersConfig = FiltersConfig()
    retries: RetriesConfig = RetriesConfig()
    dedup: Literal["exact", "none"] = "exact"
    checks: ChecksConfig = ChecksConfig()
    sensor: SensorConfig = SensorConfig()
    automation: AutomationConfig = AutomationConfig()
    index: IndexConfig = IndexConfig()
    exports: list[ExportFormat] = Field(default_factory=list)
    thumbnails: bool = True
    engine: dict[str, Any] = Field(default_factory=dict, description="overrides of the engine below for this dataset")

    @field_validator("source", mode="before")
    @classmethod
    def _source_as_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _prompts_fit(self) -> DatasetConfig:
        """Names are unique, a prompt uses only outputs that stand before it, and overrides are valid."""
        seen: list[str] = []
        for index, prompt in enumerate(self.prompts):
            if prompt.name in seen:
                raise ValueError(f"prompts.{index}.name: {prompt.name!r} is used twice")
            for used in prompt.uses:
                if used not in seen:
                    raise ValueError(f"prompts.{index}.text: {{output.{used}}} must be a prompt that stands before it")
            seen.append(prompt.name)
            for key, model in (("sampling", SamplingConfig), ("filters", FiltersConfig)):
                _override(f"prompts.{index}.{key}", getattr(self, key), getattr(prompt, key), model)
        return self

    def sampling_of(self, prompt: PromptConfig) -> SamplingConfig:
        return _override("sampling", self.sampling, prompt.sampling, SamplingConfig)

    def filters_of(self, prompt: PromptConfig) -> FiltersConfig:
        return _override("filters", self.filters, prompt.filters, FiltersConfig)


class Config(_Model):
    store: Store = "./store"
    s3: S3Config = S3Config()
    datasets: list[DatasetConfig] = Field(default_factory=list)
    engine: EngineConfig = EngineConfig()
    resources: dict[StepName, ResourcesConfig] = Field(default_factory=_default_resources)

    @model_validator(mode="after")
    def _datasets_fit(self) -> Config:
        names = [d.name for d in self.datasets]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"datasets: the name {name!r} is used twice")
        for dataset in self.datasets:
            self.engine_of(dataset)
            configchecks.apart(dataset.name, dataset.source, self.store)
        return self

    def engine_of(self, dataset: DatasetConfig) -> EngineConfig:
        return _override(f"datasets.{dataset.name}.engine", self.engine, dataset.engine, EngineConfig)

    def dataset(self, name: str) -> DatasetConfig:
        for dataset in self.datasets:
            if dataset.name == name:
                return dataset
        known = ", ".join(d.name for d in self.datasets) or "none"
        raise ConfigError(f"no dataset is called {name!r}; the config has: {known}")


M = TypeVar("M", bound=BaseModel)


def _override(where: str, base: M, changes: dict[str, Any], model: type[M]) -> M:
    """`base` with some keys replaced; an error in one of them names its full key."""
    try:
        return model(**{**base.model_dump(), **changes})
    except ValidationError as error:
        raise ValueError("; ".join(describe_error(e, where) for e in error.errors())) from None
