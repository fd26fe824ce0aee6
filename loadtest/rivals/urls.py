"""Routes of the rivals, and no others, so that no other is looked at first. Decides nothing."""

from django.urls import path

from loadtest.rivals import views

urlpatterns = [path("rivals/<slug:name>/sales/<slug:sale>/requests", views.requests, name="rival-requests")]
