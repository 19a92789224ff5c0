"""The description of the service in the OpenAPI format, made from the classes that it reads."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter

from queuewise.policies.snapshot import Snapshot
from queuewise.serve.guarded_policy import OUTCOMES

VERSION = "1"
_PLACE = {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}
_START = {
    "type": "object",
    "required": ["job_id", "places", "nodes"],
    "properties": {
        "job_id": {"type": ["integer", "string"]},
        "places": {"type": "array", "items": _PLACE},
        "nodes": {"type": "array", "items": {"type": "string"}},
    },
}
_DECISION = {
    "type": "object",
    "required": ["starts", "stops", "wake_at", "outcome", "policy", "elapsed_s"],
    "properties": {
        "starts": {"type": "array", "items": _START},
        "stops": {"type": "array", "items": {"type": ["integer", "string"]}},
        "wake_at": {"type": ["number", "null"]},
        "outcome": {"enum": list(OUTCOMES)},
        "policy": {"type": "string"},
        "elapsed_s": {"type": "number"},
    },
}
_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}, "hint": {"type": "string"}}}
_STATUS = {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}
_REFUSALS = {
    400: "the request is not JSON",
    401: "the token is missing or wrong",
    413: "the request is too large",
    422: "the snapshot is refused, with the reason",
    503: "not ready, or switched off",
}


@cache
def openapi() -> dict[str, Any]:
    """The whole document."""
    schema = TypeAdapter(Snapshot).json_schema(ref_template="#/components/schemas/{model}")
    parts = schema.pop("$defs", {})
    wrapped = {
        "type": "object",
        "required": ["snapshot"],
        "additionalProperties": False,
        "properties": {
            "snapshot": {"$ref": "#/components/schemas/Snapshot"},
            "deadline_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 60},
        },
    }
    body = {"oneOf": [{"$ref": "#/components/schemas/Snapshot"}, wrapped]}
    refusals = {str(code): _answer(text, _ERROR) for code, text in _REFUSALS.items()}
    states = {"200": _answer("yes", _STATUS), "503": _answer("not now", _STATUS)}
    metrics = {"200": {"description": "OpenMetrics", "content": {"application/openmetrics-text": {"schema": {"type": "string"}}}}}
    decide = {
        "operationId": "decide",
        "summary": "What to start now, and where",
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": _answer("the decision", _DECISION), **refusals},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Queuewise decision service", "version": VERSION},
        "paths": {
            "/v1/decide": {"post": decide},
            "/healthz": {"get": {"operationId": "health", "responses": {"200": _answer("it runs", _STATUS)}}},
            "/readyz": {"get": {"operationId": "ready", "responses": states}},
            "/metrics": {"get": {"operationId": "metrics", "responses": {**metrics, "401": refusals["401"]}}},
        },
        "components": {"schemas": {**parts, "Snapshot": schema}},
    }


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
