"""The messages of gRPC: names and numbers of fields, of which protobuf makes classes.

A line is a message with its fields in order. A field has the number after that of the field before
it, or the one that it says. `*` is many of a type, `%` a map from names to it; fields behind `|`
exclude each other. In a service, a method has the request and response of its name, or the ones
that it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from runtime.http.wire.problems import HttpError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

INFERENCE = "inference.GRPCInferenceService"
HEALTH = "grpc.health.v1.Health"
REFLECTION = "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"

_REFLECTION = """
ServerReflectionRequest: string host | string file_by_filename = 3,
    string file_containing_symbol, ExtensionRequest file_containing_extension,
    string all_extension_numbers_of_type, string list_services
ExtensionRequest: string containing_type, int32 extension_number
ServerReflectionResponse: string valid_host, ServerReflectionRequest original_request |
    FileDescriptorResponse file_descriptor_response = 4,
    ExtensionNumberResponse all_extension_numbers_response,
    ListServiceResponse list_services_response, ErrorResponse error_response
FileDescriptorResponse: bytes* file_descriptor_proto
ExtensionNumberResponse: string base_type_name, int32* extension_number
ListServiceResponse: ServiceResponse* service
ServiceResponse: string name
ErrorResponse: int32 error_code, string error_message
service ServerReflection: *ServerReflectionInfo* ServerReflectionRequest ServerReflectionResponse
"""
#: Files by the package that they define.
FILES = {
    "inference": """
ServerLiveRequest:
ServerLiveResponse: bool live
ServerReadyRequest:
ServerReadyResponse: bool ready
ModelReadyRequest: string name, string version
ModelReadyResponse: bool ready
ServerMetadataRequest:
ServerMetadataResponse: string name, string version, string* extensions
ModelMetadataRequest: string name, string version
ModelMetadataResponse: string name, string* versions, string platform, TensorMetadata* inputs,
    TensorMetadata* outputs
TensorMetadata: string name, string datatype, int64* shape
InferParameter: | bool bool_param, int64 int64_param, string string_param, double double_param,
    uint64 uint64_param
InferTensorContents: bool* bool_contents, int32* int_contents, int64* int64_contents,
    uint32* uint_contents, uint64* uint64_contents, float* fp32_contents, double* fp64_contents,
    bytes* bytes_contents
ModelInferRequest: string model_name, string model_version, string id,
    InferParameter% parameters, InferInputTensor* inputs, InferRequestedOutputTensor* outputs,
    bytes* raw_input_contents
InferInputTensor: string name, string datatype, int64* shape, InferParameter% parameters,
    InferTensorContents contents
InferRequestedOutputTensor: string name, InferParameter% parameters
ModelInferResponse: string model_name, string model_version, string id,
    InferParameter% parameters, InferOutputTensor* outputs, bytes* raw_output_contents
InferOutputTensor: string name, string datatype, int64* shape, InferParameter% parameters,
    InferTensorContents contents
ModelStreamInferResponse: string error_message, ModelInferResponse infer_response
ModelConfigRequest: string name, string version
ModelConfigResponse: ModelConfig config
ModelConfig: string name, string platform, int32 max_batch_size = 4, ModelInput* input,
    ModelOutput* output, string backend = 17
ModelInput: string name, DataType data_type, int64* dims = 4
ModelOutput: string name, DataType data_type, int64* dims
enum DataType: TYPE_INVALID TYPE_BOOL TYPE_UINT8 TYPE_UINT16 TYPE_UINT32 TYPE_UINT64 TYPE_INT8
    TYPE_INT16 TYPE_INT32 TYPE_INT64 TYPE_FP16 TYPE_FP32 TYPE_FP64 TYPE_STRING TYPE_BF16
ModelStatisticsRequest: string name, string version
ModelStatisticsResponse: ModelStatistics* model_stats
ModelStatistics: string name, string version, uint64 last_inference, uint64 inference_count,
    uint64 execution_count, InferStatistics inference_stats
InferStatistics: StatisticDuration success, StatisticDuration fail, StatisticDuration queue,
    StatisticDuration compute_input, StatisticDuration compute_infer,
    StatisticDuration compute_output, StatisticDuration cache_hit, StatisticDuration cache_miss
StatisticDuration: uint64 count, uint64 ns
RepositoryIndexRequest: string repository_name, bool ready
RepositoryIndexResponse: ModelIndex* models
ModelIndex: string name, string version, string state, string reason
ModelRepositoryParameter: | bool bool_param, int64 int64_param, string string_param,
    bytes bytes_param
RepositoryModelLoadRequest: string repository_name, string model_name,
    ModelRepositoryParameter% parameters
RepositoryModelLoadResponse:
RepositoryModelUnloadRequest: string repository_name, string model_name,
    ModelRepositoryParameter% parameters
RepositoryModelUnloadResponse:
service GRPCInferenceService: ServerLive, ServerReady, ModelReady, ServerMetadata, ModelMetadata,
    ModelInfer, *ModelStreamInfer* ModelInferRequest ModelStreamInferResponse, ModelConfig,
    ModelStatistics, RepositoryIndex, RepositoryModelLoad, RepositoryModelUnload
""",
    "grpc.health.v1": """
HealthCheckRequest: string service
HealthCheckResponse: ServingStatus status
enum ServingStatus: UNKNOWN SERVING NOT_SERVING SERVICE_UNKNOWN
service Health: Check HealthCheckRequest HealthCheckResponse,
    Watch* HealthCheckRequest HealthCheckResponse
""",
    "grpc.reflection.v1": _REFLECTION,
    "grpc.reflection.v1alpha": _REFLECTION,
}
_NUMBERS = {"double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8}
_NUMBERS |= {"string": 9, "bytes": 12, "uint32": 13}
_MESSAGE, _ENUM, _ONE, _MANY = 11, 14, 1, 3


def file_of(package: str) -> FileDescriptorProto:
    """The description of a file, as protobuf has it."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    made = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    lines = re.sub(r"\n\s+", " ", FILES[package]).strip().splitlines()
    enums = {line.split(":")[0][5:] for line in lines if line.startswith("enum ")}
    for line in lines:
        kind, _, name = line.partition(":")[0].rpartition(" ")
        rest = line.partition(":")[2].strip()
        if kind == "enum":
            enum = made.enum_type.add(name=name)
            for number, value in enumerate(rest.split()):
                enum.value.add(name=value, number=number)
        elif kind == "service":
            service = made.service.add(name=name)
            for method in rest.split(", "):
                called, *types = method.split()
                bare = called.strip("*")
                types = types or [f"{bare}Request", f"{bare}Response"]
                service.method.add(
                    name=bare,
                    input_type=f".{package}.{types[0]}",
                    output_type=f".{package}.{types[1]}",
                    client_streaming=called[0] == "*",
                    server_streaming=called[-1] == "*",
                )
        else:
            _fill(made.message_type.add(name=name), rest, package, enums)
    return made


def _fill(message: DescriptorProto, text: str, package: str, enums: set[str]) -> None:
    """Give a message its fields."""
    number = 0
    for kind, name, at, alone in _fields(text):
        number = int(at) if at else number + 1
        bare = kind.rstrip("*%")
        field = message.field.add(name=name, number=number, label=_ONE if kind == bare else _MANY)
        field.type = _NUMBERS.get(bare, _ENUM if bare in enums else _MESSAGE)
        if bare not in _NUMBERS:
            field.type_name = f".{package}.{bare}"
        if kind[-1] == "%":
            entry = message.nested_type.add(name=f"{name.title()}Entry")
            entry.options.map_entry = True
            _fill(entry, f"string key, {bare} value", package, enums)
            field.type_name = f".{package}.{message.name}.{entry.name}"
        if alone:
            if not message.oneof_decl:
                message.oneof_decl.add(name="choice")
            field.oneof_index = 0


def _fields(text: str) -> Iterator[tuple[str, str, str, bool]]:
    """Type, name, number or nothing, and whether it excludes others, of each field."""
    before, _, behind = text.partition("|")
    for part, alone in ((before, False), (behind, True)):
        for field in filter(None, map(str.strip, part.split(","))):
            kind, name, *at = field.replace(" = ", " ").split()
            yield kind, name, at[0] if at else "", alone


@cache
def pool() -> Any:
    """The descriptions of all files, apart from those of clients in the same process."""
    try:
        from google.protobuf.descriptor_pool import DescriptorPool
    except ModuleNotFoundError as problem:
        raise HttpError(
            "gRPC needs a distribution more",
            501,
            found=f"no {problem.name}",
            hint="pip install 'pretzel-runtime[grpc]', and start the server again",
        ) from None
    made = DescriptorPool()
    for package in FILES:
        made.Add(file_of(package))
    return made


@cache
def message_class(name: str) -> Any:
    """The class of a message, by its whole name."""
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(pool().FindMessageTypeByName(name))


def parsed(name: str, body: bytes | memoryview) -> Any:
    """The message in a body."""
    made = message_class(name)()
    try:
        made.ParseFromString(bytes(body))
    except Exception:  # noqa: BLE001 (protobuf's error, whose class each implementation has)
        raise HttpError(f"the message is no {name}", found=f"{len(body)} bytes") from None
    return made
