"""Routes of the rivals; decides nothing; called by Django, only when FAIRDROP_RIVALS is on."""

from django.urls import path

from loadtest.rivals import views

urlpatterns = [path("<slug:name>/sales/<slug:sale>/requests", views.requests, name="rival-requests")]
