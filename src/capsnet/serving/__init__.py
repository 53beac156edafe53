"""Serving models over HTTP: the API for programs (``POST /api/v1/predict``), micro-batching, access control.

The explorer is built on top of it. ``capsnet.serving.app.create_app`` makes an application with the API alone.
FastAPI and uvicorn are an extra: nothing here is imported by ``import capsnet``.
"""
