"""The rivals' addresses alone, so that no other is looked at first; decides nothing."""

from django.urls import include, path

urlpatterns = [path("rivals/", include("loadtest.rivals.urls"))]
