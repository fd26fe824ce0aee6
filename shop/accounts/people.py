"""The accounts and the groups of staff, with every right in the language of the reader.
Decides nothing: what a right lets somebody do stands with what asks for it.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.http import HttpRequest

from shop.names.changes import TellsChanges
from shop.names.sentences import in_words


class RightsField(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    """Rights to choose from. Their names are rows of the database, which are in English."""

    def label_from_instance(self, right: Permission) -> str:
        return f"{right.content_type} | {in_words(right.name)}"


def _with_rights(field: Any, options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "form_class": RightsField} if field.related_model is Permission else options


class StaffAdmin(TellsChanges, UserAdmin):  # type: ignore[type-arg]
    """Django's own, with its rights in words."""

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest | None = None, **options: Any) -> Any:
        return super().formfield_for_manytomany(db_field, request, **_with_rights(db_field, options))  # type: ignore[arg-type]


class RoleAdmin(TellsChanges, GroupAdmin):
    """Django's own, with its rights in words."""

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest | None = None, **options: Any) -> Any:
        return super().formfield_for_manytomany(db_field, request, **_with_rights(db_field, options))


admin.site.unregister([User, Group])
admin.site.register(User, StaffAdmin)
admin.site.register(Group, RoleAdmin)
