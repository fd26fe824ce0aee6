"""The shapes of Stripe's API as JSON Schemas, read from the types of the official library.

The library's types are generated from Stripe's published OpenAPI description ("File generated from our OpenAPI spec"),
for the version of the API that the library speaks. So a new version of the library brings its shapes with it.
"""

from __future__ import annotations

import builtins
import sys
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, Union
from urllib.parse import parse_qsl

import stripe
import typing_extensions
from jsonschema import Draft202012Validator
from stripe._error_object import ErrorObject
from stripe._request_options import RequestOptions
from stripe.params import RefundCreateParams, RefundListParams
from stripe.params.checkout import (
    SessionCreateParams,
    SessionExpireParams,
    SessionListParams,
    SessionRetrieveParams,
)

# What a request may say, by its method and path; the objects of answers, by their name.
REQUESTS = {
    "POST /v1/checkout/sessions": SessionCreateParams,
    "GET /v1/checkout/sessions": SessionListParams,
    "GET /v1/checkout/sessions/*": SessionRetrieveParams,
    "POST /v1/checkout/sessions/*/expire": SessionExpireParams,
    "POST /v1/refunds": RefundCreateParams,
    "GET /v1/refunds": RefundListParams,
}
OBJECTS = {
    "checkout.session": stripe.checkout.Session,
    "payment_intent": stripe.PaymentIntent,
    "charge": stripe.Charge,
    "refund": stripe.Refund,
    "event": stripe.Event,
    "error": ErrorObject,
}
PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", object: "object"}
# In a form everything is text.
IN_FORM = {
    int: {"type": "string", "pattern": "^-?[0-9]+$"},
    bool: {"enum": ["true", "false"]},
    float: {"type": "string", "pattern": "^-?[0-9.]+$"},
}


class Names(dict[str, Any]):
    """The names that the types of a module use, with those that it imports for a type checker only."""

    def __missing__(self, name: str) -> Any:
        return next((vars(one)[name] for one in (builtins, typing, stripe) if name in vars(one)), Any)


def fields_of(kind: type) -> dict[str, Any]:
    """Return the types of a class's own fields, without the options that every request has."""
    names = Names(vars(sys.modules[kind.__module__]))
    found = typing_extensions.get_type_hints(kind, localns=names, include_extras=True)
    options = RequestOptions.__annotations__ if typing_extensions.is_typeddict(kind) else ()
    own = [name for name in kind.__annotations__ if name not in options]
    return {name: found[name] for name in own if typing.get_origin(found[name]) is not typing.ClassVar}


def schema_of(kind: Any, *, in_form: bool) -> dict[str, Any]:
    """Return the schema of a type. Objects that Stripe names by themselves are referred to by that name."""
    origin, inner = typing_extensions.get_origin(kind), typing_extensions.get_args(kind)
    if origin in (typing_extensions.NotRequired, typing_extensions.Required, typing_extensions.Annotated):
        return schema_of(inner[0], in_form=in_form)
    if origin in (Union, types.UnionType):
        # An answer may have a word that this version does not know; the stand-in may not.
        words = any(is_word(each) and "" not in typing.get_args(each) for each in inner)
        known = [each for each in inner if each is not str or not words]
        return {"anyOf": [schema_of(each, in_form=in_form) for each in known]}
    if is_word(kind):
        return {"enum": list(inner)}
    if origin is list:
        return {"type": "array", "items": schema_of(inner[0], in_form=in_form)}
    if origin is not None:
        return {"type": "object"}
    if in_form and kind in IN_FORM:
        return IN_FORM[kind]
    if kind in PLAIN:
        return {"type": PLAIN[kind]}
    return object_schema(kind, in_form=in_form) if isinstance(kind, type) else {}


def is_word(kind: Any) -> bool:
    """Say whether a type is one of a few words."""
    return typing_extensions.get_origin(kind) in (Literal, typing_extensions.Literal)


def object_schema(kind: type, *, in_form: bool) -> dict[str, Any]:
    """Return the schema of a class, or a reference to that of an object with a name of its own."""
    name = getattr(kind, "OBJECT_NAME", None)
    if name is not None:
        return {"$ref": f"#/$defs/{name}"} if name in OBJECTS else {"type": "object"}
    if not hasattr(kind, "__annotations__") or not getattr(kind, "__module__", "").startswith("stripe"):
        return {}
    return closed(kind, in_form=in_form)


def closed(kind: type, *, in_form: bool) -> dict[str, Any]:
    """Return the schema of an object that has the fields of a class and no others."""
    fields = fields_of(kind)
    # A parameter says whether it may be left out; a field of an answer may be left out if it may be null.
    needed = getattr(kind, "__required_keys__", None)
    if needed is None:
        needed = {name for name, each in fields.items() if type(None) not in typing_extensions.get_args(each)}
    return {
        "type": "object",
        "properties": {name: schema_of(each, in_form=in_form) for name, each in fields.items()},
        "required": sorted(needed & fields.keys()),
        "additionalProperties": False,
    }


@cache
def definitions() -> dict[str, Any]:
    """Return the schemas of all objects with a name."""
    return {name: closed(kind, in_form=False) for name, kind in OBJECTS.items()}


@cache
def validator(name: str) -> Draft202012Validator:
    """Return what checks a request, or an object of an answer, by its name."""
    if name in REQUESTS:
        return Draft202012Validator(closed(REQUESTS[name], in_form=True))
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": definitions()})


def faults_of(name: str, value: Any) -> list[str]:
    """Return what is wrong with a request or an object."""
    return [f"{name} {each.json_path}: {each.message[:300]}" for each in validator(name).iter_errors(value)]


def example(name: str, **known: Any) -> dict[str, Any]:
    """Return an object with every field that it must have, and what is known of it."""
    return _example(definitions()[name]) | known


def _example(schema: Mapping[str, Any]) -> Any:
    if "anyOf" in schema:
        return _example(schema["anyOf"][0])
    if "enum" in schema:
        return schema["enum"][0]
    made: dict[str, Any] = {"array": [], "string": "", "integer": 0, "number": 0, "boolean": False, "null": None}
    if schema.get("type") == "object":
        return {each: _example(schema["properties"][each]) for each in schema.get("required", ())}
    return made.get(schema.get("type", ""))


def read_form(text: str) -> dict[str, Any]:
    """Return the form `a[b][0][c]=d` as nested objects and lists, every leaf a text."""
    found: dict[str, Any] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        *path, last = name.replace("]", "").split("[")
        place = found
        for step in path:
            place = place.setdefault(step, {})
        place[last] = value
    return {name: _listed(value) for name, value in found.items()}


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {name: _listed(each) for name, each in value.items()}
    return list(inner.values()) if all(name.isdigit() for name in inner) else inner
