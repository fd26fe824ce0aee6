"""Routes of the rivals; decides nothing."""

from django.urls import path

from loadtest.rivals import views

urlpatterns = [path("<slug:name>/sales/<slug:sale>/requests", views.requests, name="rival-requests")]
