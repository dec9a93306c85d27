"""Amazon's own model of SQS, out of botocore, in both protocols: it writes requests for us and reads our answers."""

from __future__ import annotations

import copy
import functools
from typing import Any
from urllib.parse import urlencode

from botocore.loaders import Loader
from botocore.model import OperationModel, ServiceModel, Shape
from botocore.parsers import create_parser
from botocore.serialize import create_serializer

from penstock.wire.http import Request, Response

PROTOCOLS = ["json", "query"]

# botocore has dropped the Query protocol from its model of SQS. These are the names that its earlier model had: of the
# items of lists and maps, and of the members that hold them.
_ITEMS = {
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "AttributeNameList": "AttributeName",
    "BatchResultErrorEntryList": "BatchResultErrorEntry",
    "BinaryList": "BinaryListValue",
    "ChangeMessageVisibilityBatchRequestEntryList": "ChangeMessageVisibilityBatchRequestEntry",
    "ChangeMessageVisibilityBatchResultEntryList": "ChangeMessageVisibilityBatchResultEntry",
    "DeleteMessageBatchRequestEntryList": "DeleteMessageBatchRequestEntry",
    "DeleteMessageBatchResultEntryList": "DeleteMessageBatchResultEntry",
    "ListMessageMoveTasksResultEntryList": "ListMessageMoveTasksResultEntry",
    "MessageAttributeNameList": "MessageAttributeName",
    "MessageList": "Message",
    "MessageSystemAttributeList": "AttributeName",
    "QueueUrlList": "QueueUrl",
    "SendMessageBatchRequestEntryList": "SendMessageBatchRequestEntry",
    "SendMessageBatchResultEntryList": "SendMessageBatchResultEntry",
    "StringList": "StringListValue",
    "TagKeyList": "TagKey",
}
_MEMBERS = {
    "MessageBodyAttributeMap": "MessageAttribute",
    "MessageBodySystemAttributeMap": "MessageSystemAttribute",
    "MessageSystemAttributeMap": "Attribute",
    "QueueAttributeMap": "Attribute",
    "TagMap": "Tag",
}


@functools.cache
def sqs_model(protocol: str) -> ServiceModel:
    model = Loader().load_service_model("sqs", "service-2")
    return ServiceModel(_in_query(model) if protocol == "query" else model, "sqs")


def _in_query(model: dict[str, Any]) -> dict[str, Any]:
    model = copy.deepcopy(model)
    metadata = model["metadata"]
    metadata.update(protocol="query", protocols=["query"], xmlNamespace="http://queue.amazonaws.com/doc/2012-11-05/")
    del metadata["awsQueryCompatible"]
    for operation in model["operations"].values():
        if "output" in operation:
            operation["output"]["resultWrapper"] = f"{operation['name']}Result"
    for name, shape in model["shapes"].items():
        if shape["type"] == "list":
            shape["member"]["locationName"] = _ITEMS[name]
            shape["flattened"] = True
        elif shape["type"] == "map":
            shape["key"]["locationName"] = "Key" if name == "TagMap" else "Name"
            shape["value"]["locationName"] = "Value"
        elif shape["type"] == "structure":
            for member in shape["members"].values():
                held = member["shape"]
                if held in _MEMBERS:
                    member["locationName"] = _MEMBERS[held]
                elif held in _ITEMS:
                    member["locationName"] = _ITEMS[held]
    return model


def operation_model(protocol: str, name: str) -> OperationModel:
    return sqs_model(protocol).operation_model(name)


def write_request(protocol: str, name: str, parameters: dict[str, Any], **headers: str) -> Request:
    """Write a request as botocore sends it."""
    serializer = create_serializer(protocol, include_validation=False)
    written = serializer.serialize_to_request(parameters, operation_model(protocol, name))
    body = written["body"]
    if isinstance(body, dict):
        body = urlencode(body)
    sent = {key.lower(): value for key, value in written["headers"].items()} | {"host": "localhost:9324"}
    sent |= {key.replace("_", "-"): value for key, value in headers.items()}
    return Request(
        method=written["method"],
        path=written["url_path"],
        query="",
        headers=sent,
        body=body.encode() if isinstance(body, str) else body,
    )


def read_response(protocol: str, name: str, response: Response) -> dict[str, Any]:
    """Read an answer as botocore does."""
    told = {
        "headers": {key.lower(): value for key, value in response.headers},
        "body": response.body,
        "status_code": response.status,
    }
    parsed: dict[str, Any] = create_parser(protocol).parse(told, operation_model(protocol, name).output_shape)
    return parsed


def result_of(protocol: str, name: str, response: Response) -> dict[str, Any]:
    """Read an answer, and leave out what is said about it rather than in it."""
    assert response.status == 200, response.body
    parsed = read_response(protocol, name, response)
    parsed.pop("ResponseMetadata")
    return parsed


def sample(shape: Shape, told: str = "x") -> Any:
    """Make a value of a shape with everything in it, all of it told apart."""
    match shape.type_name:
        case "structure":
            return {name: sample(member, f"{told}.{name}") for name, member in shape.members.items()}
        case "list":
            return [sample(shape.member, f"{told}.{index}") for index in range(2)]
        case "map":
            return {f"{told}.{index}": sample(shape.value, f"{told}.{index}") for index in range(2)}
        case scalar:
            text = f"{told} <&>\"'\r\n\té€"
            number = len(told)
            return {
                "string": text,
                "blob": text.encode() + b"\x00\xff",
                "integer": number,
                "long": number,
                "boolean": True,
            }[scalar]
