"""Logging in and out; the one-time link that ``manage.py serve`` prints."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path

from accounts.forms import LoginForm
from accounts.views import OneTimeLoginView

urlpatterns = [
    path("login/", LoginView.as_view(authentication_form=LoginForm, redirect_authenticated_user=True), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("once/<str:ticket>/", OneTimeLoginView.as_view(), name="one_time_login"),
]
