"""The address of the hosted page; decides nothing."""

from django.urls import path

from shop.sandbox import views

urlpatterns = [path("pay/<slug:reference>/", views.pay, name="sandbox-pay")]
