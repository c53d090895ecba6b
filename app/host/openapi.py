"""The interface under /v1 described in OpenAPI, for people, for generators of clients, and for the fuzzer.

Written by hand beside the checks, not derived from them: the fuzzer holds the two against each other, which a
description made from the code could not do. It names what is honoured. Fields that are ignored may be sent and
are not listed; those that are refused are listed with the one value that is accepted.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from app import __version__
from app.host.jobs import DEFAULT_MAX_TOKENS, Sampling
from app.host.openai_request import MAX_LIKELIEST, MAX_STOPS

Schema = dict[str, Any]

_ERRORS = {
    "400": "The request cannot be honoured; `param` names the field. `context_length_exceeded`: it is too long.",
    "401": "The key is missing or wrong.",
    "403": "The `Host` or `Origin` header is foreign.",
    "404": "No such model or message.",
    "405": "The path does not take this method.",
    "408": "The request did not arrive in time.",
    "409": "The reply was stopped before it began.",
    "413": "The request is larger than 16 MiB.",
    "429": "Too many replies wait already; see `Retry-After`.",
    "500": "A fault of this program.",
    "503": "The host is ending.",
    "507": "The disk is full.",
}


@cache
def description() -> Schema:
    """The whole description."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Mynah",
            "version": __version__,
            "description": "A local model that learns from being talked to, as the OpenAI chat interface.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{}, {"bearer": []}],
        "paths": _paths(),
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(),
        },
    }


def _paths() -> Schema:
    return {
        "/v1/chat/completions": {
            "post": _operation(
                "createChatCompletion",
                "Answer a conversation. With `stream` the answer is a stream of server-sent events.",
                _ref("Completion"),
                body=_ref("ChatRequest"),
                parameters=[_LEARN],
                stream=True,
            )
        },
        "/v1/chat/completions/input_tokens": {
            "post": _operation(
                "countTokens",
                "How many tokens the prompt of a request has. Nothing is kept.",
                _object({"object": _STRING, "input_tokens": {"type": "integer"}}, ["input_tokens"]),
                body=_ref("ChatRequest"),
            )
        },
        "/v1/models": {
            "get": _operation("listModels", "The names that can be asked for.", _ref("ModelList"))
        },
        "/v1/models/{name}": {
            "get": _operation("retrieveModel", "One name.", _ref("Model"), parameters=[_NAME])
        },
        "/v1/feedback": {
            "post": _operation(
                "giveFeedback",
                "Rate or correct a reply: what teaches most.",
                _ref("FeedbackAnswer"),
                body=_ref("Feedback"),
            )
        },
        "/health": {"get": _operation("health", "Whether it is there.", _ref("Health"))},
    }


_LEARN: Schema = {
    "name": "X-Mynah-Learn",
    "in": "header",
    "required": False,
    "description": "`off`: the conversation is kept apart and never learned from. Titles and summaries belong there.",
    "schema": {"type": "string", "enum": ["on", "off"]},
}
_NAME: Schema = {
    "name": "name",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "minLength": 1},
}


def _operation(
    name: str,
    summary: str,
    answer: Schema,
    *,
    body: Schema | None = None,
    parameters: list[Schema] | None = None,
    stream: bool = False,
) -> Schema:
    content = {"application/json": {"schema": answer}}
    if stream:
        # Of one event: a chunk as JSON, or an error, or `[DONE]`.
        content["text/event-stream"] = {"schema": _object({"data": _STRING}, ["data"])}
    responses: Schema = {"200": {"description": "Done.", "content": content}}
    for status, text in _ERRORS.items():
        responses[status] = {
            "description": text,
            "content": {"application/json": {"schema": _ref("Error")}},
        }
    operation: Schema = {"operationId": name, "summary": summary, "responses": responses}
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    if parameters:
        operation["parameters"] = parameters
    return operation


def _schemas() -> Schema:
    return {
        "ChatRequest": _object(_request_fields(), ["messages"]),
        "Message": _message(),
        "Tool": _tool(),
        "ToolCall": _tool_call(),
        "Completion": _completion(),
        "Model": _object(
            {
                "id": _STRING,
                "object": {"const": "model"},
                "created": {"type": "integer"},
                "owned_by": _STRING,
                "mynah": _object({"adapter": _nullable("string"), "version": _nullable("integer")}),
            },
            ["id", "object", "created", "owned_by"],
        ),
        "ModelList": _object(
            {"object": {"const": "list"}, "data": {"type": "array", "items": _ref("Model")}},
            ["object", "data"],
        ),
        "Feedback": _feedback(),
        "FeedbackAnswer": _object(
            {"signal": _STRING, "message": _STRING, "fate": _nullable("string")},
            ["signal", "message", "fate"],
        ),
        "Health": _object({"status": {"enum": ["ok", "ending"]}}, ["status"]),
        "Error": _error(),
    }


def _request_fields() -> Schema:
    plain = Sampling()
    return {
        "model": {**_nullable("string"), "description": "A name of /v1/models; absent: what serves now."},
        "messages": {"type": "array", "minItems": 1, "items": _ref("Message")},
        "stream": _nullable("boolean"),
        "stream_options": _null_or(_object({"include_usage": _nullable("boolean")})),
        "max_completion_tokens": {**_number("integer", 1, 10_000_000), "default": DEFAULT_MAX_TOKENS},
        "max_tokens": _number("integer", 1, 10_000_000),
        "temperature": {**_number("number", 0, 2), "default": plain.temperature},
        "top_p": {**_number("number", 0, 1), "default": plain.top_p},
        "top_k": {**_number("integer", 0, 1_000_000), "default": plain.top_k},
        "repeat_penalty": {**_number("number", 1, 2), "default": plain.repeat_penalty},
        "presence_penalty": {**_number("number", -2, 2), "default": plain.presence_penalty},
        "frequency_penalty": {**_number("number", -2, 2), "default": plain.frequency_penalty},
        "seed": _nullable("integer"),
        "stop": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "maxItems": MAX_STOPS},
                {"type": "null"},
            ]
        },
        "n": {"enum": [1, None]},
        "logprobs": _nullable("boolean"),
        "top_logprobs": {**_number("integer", 0, MAX_LIKELIEST), "description": "Needs `logprobs`."},
        "response_format": _null_or(
            {
                "oneOf": [
                    _object({"type": {"const": "text"}}, ["type"]),
                    _object({"type": {"const": "json_object"}}, ["type"]),
                    _object(
                        {
                            "type": {"const": "json_schema"},
                            "json_schema": _object({"name": _STRING, "schema": {"type": "object"}}),
                        },
                        ["type", "json_schema"],
                    ),
                ]
            }
        ),
        "tools": _null_or({"type": "array", "items": _ref("Tool"), "maxItems": 128}),
        "tool_choice": {
            "anyOf": [
                {"enum": ["none", "auto", "required", None]},
                _object(
                    {"type": {"const": "function"}, "function": _object({"name": _STRING}, ["name"])},
                    ["type", "function"],
                ),
            ]
        },
        "parallel_tool_calls": _nullable("boolean"),
        "store": {**_nullable("boolean"), "description": "False: nothing of it is ever written."},
        "user": {**_nullable("string"), "description": "Tells callers apart, so that each gets its turn."},
    }


def _message() -> Schema:
    part = {
        "oneOf": [
            _object({"type": {"const": "text"}, "text": _STRING}, ["type", "text"]),
            _object({"type": {"const": "refusal"}, "refusal": _STRING}, ["type", "refusal"]),
        ]
    }
    text = {"anyOf": [{"type": "string"}, {"type": "array", "items": part}]}
    calls = _null_or({"type": "array", "items": _ref("ToolCall")})
    return {
        "oneOf": [
            _object({"role": {"enum": ["system", "developer"]}, "content": _null_or(text)}, ["role"]),
            _object({"role": {"const": "user"}, "content": text}, ["role", "content"]),
            _object(
                {"role": {"const": "assistant"}, "content": _null_or(text), "tool_calls": calls}, ["role"]
            ),
            _object(
                {"role": {"const": "tool"}, "content": text, "tool_call_id": _nullable("string")},
                ["role", "content"],
            ),
        ]
    }


def _feedback() -> Schema:
    message = {
        "type": "string",
        "minLength": 1,
        "description": "The id of a completion, or its `mynah.message`.",
    }
    thumb = _object(
        {
            "message": message,
            "kind": {"const": "thumb"},
            "value": {"enum": [1, -1, 0], "description": "0 takes a rating back."},
            "text": {**_nullable("string"), "description": "What was wrong or right with it."},
        },
        ["message", "kind", "value"],
    )
    correction = _object(
        {
            "message": message,
            "kind": {"const": "correction"},
            "text": {
                "type": "string",
                "pattern": r"[^\s]",
                "description": "What the reply should have been.",
            },
        },
        ["message", "kind", "text"],
    )
    return {"oneOf": [thumb, correction]}


def _tool() -> Schema:
    function = _object(
        {
            "name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$"},
            "description": _nullable("string"),
            "parameters": _null_or({"type": "object"}),
        },
        ["name"],
    )
    return _object({"type": {"const": "function"}, "function": function}, ["type", "function"])


def _tool_call() -> Schema:
    function = _object({"name": _STRING, "arguments": _STRING}, ["name", "arguments"])
    return _object(
        {"id": _STRING, "type": {"const": "function"}, "function": function}, ["id", "type", "function"]
    )


def _completion() -> Schema:
    message = _object(
        {
            "role": {"const": "assistant"},
            "content": _nullable("string"),
            "refusal": {"type": "null"},
            "reasoning_content": _STRING,
            "tool_calls": {"type": "array", "items": _ref("ToolCall")},
        },
        ["role", "content"],
    )
    choice = _object(
        {
            "index": {"const": 0},
            "message": message,
            "logprobs": _nullable("object"),
            "finish_reason": {"enum": ["stop", "length", "tool_calls"]},
        },
        ["index", "message", "finish_reason"],
    )
    counts = {name: {"type": "integer"} for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    return _object(
        {
            "id": _STRING,
            "object": {"const": "chat.completion"},
            "created": {"type": "integer"},
            "model": _STRING,
            "system_fingerprint": {"type": "string", "description": "Ends with the adapter's id, or `base`."},
            "choices": {"type": "array", "items": choice, "minItems": 1, "maxItems": 1},
            "usage": _object(
                {**counts, "prompt_tokens_details": _object({"cached_tokens": {"type": "integer"}})},
                list(counts),
            ),
            "timings": {"type": "object"},
            "mynah": _object(
                {
                    "message": _nullable("string"),
                    "conversation": _nullable("string"),
                    "adapter": _nullable("string"),
                },
                ["message", "conversation", "adapter"],
            ),
        },
        ["id", "object", "created", "model", "choices", "usage", "mynah"],
    )


def _error() -> Schema:
    fields = {
        "message": _STRING,
        "type": _STRING,
        "param": _nullable("string"),
        "code": _nullable("string"),
    }
    return _object({"error": _object(fields, list(fields))}, ["error"])


_STRING: Schema = {"type": "string"}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _nullable(kind: str) -> Schema:
    return {"type": [kind, "null"]}


def _null_or(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _number(kind: str, low: float, high: float) -> Schema:
    return {**_nullable(kind), "minimum": low, "maximum": high}


def _object(properties: Schema, required: list[str] | None = None) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema
