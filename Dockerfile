# The explorer on a CPU, as a user without rights:
#   docker build -t capsnet .
#   docker run --rm --hostname localhost --publish 127.0.0.1:8028:8028 capsnet
# and open the address with the token that it prints. PIP_EXTRA_INDEX_URL (--build-arg) may name the address of PyTorch's
# CPU builds, from its "Get Started" page; otherwise the image also holds CUDA libraries.
FROM python:3.12-slim AS build
WORKDIR /source
COPY . .
RUN pip wheel --quiet --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.12-slim
ARG PIP_EXTRA_INDEX_URL=""
ENV PYTHONUNBUFFERED=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheels /wheels
RUN pip install --quiet --no-cache-dir -c /tmp/constraints.txt "$(ls /wheels/*.whl)[explorer]" \
 && rm -r /wheels \
 && useradd --create-home --uid 10001 capsnet
USER capsnet
WORKDIR /home/capsnet
EXPOSE 8028
# any answer is a sign of life: without the token it is 401
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --start-interval=2s \
  CMD ["python", "-c", "import http.client as h, sys; c = h.HTTPConnection('127.0.0.1', 8028, timeout=4); c.request('GET', '/'); sys.exit(c.getresponse().status >= 500)"]
CMD ["capsnet", "explore", "--host", "0.0.0.0", "--port", "8028", "--no-browser"]
