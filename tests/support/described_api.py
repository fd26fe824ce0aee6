"""A client made from /api/v1/openapi.json alone: it knows the shop only as that says, and refuses any other answer.
Never asserts what a call is for; that is the test's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from jsonschema import Draft202012Validator, FormatChecker

from tests.support.http_calls import Answer, Caller

Document = dict[str, Any]
FORMATS = FormatChecker(formats=())
FORMATS.checks("date-time", raises=ValueError)(lambda text: not isinstance(text, str) or datetime.fromisoformat(text))


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. answers: its content by status and media type, each a schema."""

    name: str
    method: str
    path: str
    parameters: tuple[Document, ...]
    body: Document | None
    answers: Mapping[str, Mapping[str, Document]]


class DescribedApi:
    """The API as `document` describes it."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.operations = {each.name: each for each in map(self._operation, self._listed())}
        self._validator = cache(self._new_validator)

    def call(
        self,
        web: Caller,
        name: str,
        *,
        values: Mapping[str, object] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Call the operation `name` with the parameters `values`, and return an answer that is as described."""
        operation, given = self.operations[name], dict(values or {})
        path, query, more = operation.path, {}, dict(headers or {})
        for each in operation.parameters:
            if each["name"] in given:
                value = str(given.pop(each["name"]))
                match each["in"]:
                    case "path":
                        path = path.replace(f"{{{each['name']}}}", quote(value, safe=""))
                    case "query":
                        query[each["name"]] = value
                    case "header":
                        more[each["name"]] = value
        assert not given, f"{name} has no such parameters: {sorted(given)}"
        text = None
        if body is not None:
            text, more["Content-Type"] = json.dumps(body), "application/json"
        target = f"{path}?{urlencode(query)}" if query else path
        answer = web.call(operation.method, target, body=text, headers=more)
        self.check(name, answer)
        return answer

    def check(self, name: str, answer: Answer) -> None:
        """Fail unless the operation `name` is said to answer so."""
        operation = self.operations[name]
        kinds = operation.answers.get(str(answer.status))
        assert kinds is not None, f"{name} is not said to answer {answer.status}: {answer.body[:300]!r}"
        media = answer.headers["content-type"].partition(";")[0]
        assert media in kinds, f"{name} is not said to answer {answer.status} as {media}"
        if media.endswith("json"):
            problems = [
                error.message for error in self._validator(name, answer.status, media).iter_errors(answer.json())
            ]
            assert problems == [], f"{name}, {answer.status}: {problems}"

    def _new_validator(self, name: str, status: int, media: str) -> Draft202012Validator:
        schema = self.operations[name].answers[str(status)][media]
        whole = {**schema, "components": self.document["components"]}
        Draft202012Validator.check_schema(whole)
        return Draft202012Validator(whole, format_checker=FORMATS)

    def _listed(self) -> list[tuple[str, str, Document]]:
        return [(method, path, each) for path, ways in self.document["paths"].items() for method, each in ways.items()]

    def _operation(self, listed: tuple[str, str, Document]) -> Operation:
        method, path, each = listed
        answers = {status: self._follow(answer).get("content", {}) for status, answer in each["responses"].items()}
        return Operation(
            name=each["operationId"],
            method=method.upper(),
            path=path,
            parameters=tuple(map(self._follow, each.get("parameters", ()))),
            body=self._body_of(each),
            answers={
                status: {media: one["schema"] for media, one in kinds.items()} for status, kinds in answers.items()
            },
        )

    def _body_of(self, each: Document) -> Document | None:
        if "requestBody" not in each:
            return None
        return self._follow(each["requestBody"]["content"]["application/json"]["schema"])

    def _follow(self, one: Document) -> Document:
        found: Any = one
        while "$ref" in found:
            way, found = found["$ref"], self.document
            for part in way.removeprefix("#/").split("/"):
                found = found[part]
        return found
