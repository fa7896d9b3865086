"""The native output documents of the demo models, and the media files that they point at.

Shapes follow what the models' published examples show. A document is a function of its run alone, so that every
read of a finished request gives the same bytes (contract: the result read).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from runner.simulator import media, pictures

Output = dict[str, object]


@dataclass(frozen=True, slots=True)
class RunInput:
    """What of a body decides the output; kept in place of the body, which may hold megabytes."""

    prompt: str
    count: int = 1
    width: int = 1024
    height: int = 1024
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that has succeeded, as the output sees it."""

    request_id: str
    model: str
    given: RunInput
    started: float
    finished: float
    #: Scheme and authority under which the submit reached the simulator.
    origin: str
    #: Until when media links work.
    links_until: float
    #: Signs links.
    secret: str
    moderated: bool = False

    @property
    def variation(self) -> str:
        """Tells the pictures of equal prompts apart, unless a seed asks for the same one."""
        return self.request_id if self.given.seed is None else str(self.given.seed)

    @property
    def seed(self) -> int:
        """The seed that the document names."""
        if self.given.seed is not None:
            return self.given.seed
        return int(self.request_id[:8], 16)

    def identifier(self, what: str) -> str:
        """Another id of this run, as partners have of their own."""
        return str(uuid.uuid5(uuid.UUID(self.request_id), what))

    def link(self, name: str) -> str:
        """A signed link to one media file."""
        path = f"/media/{self.request_id}/{quote(name)}"
        until = int(self.links_until)
        return f"{self.origin}{path}?sig={signature(self.secret, path, until)}&exp={until}"

    def picture(self, index: int = 0) -> bytes:
        """The bytes of one picture."""
        variation = f"{self.variation}/{index}" if index else self.variation
        return pictures.png(self.given.prompt, variation, self.given.width, self.given.height)


def signature(secret: str, path: str, until: int) -> str:
    """What a media link carries to show that the simulator gave it out."""
    return hmac.new(secret.encode(), f"{path}?{until}".encode(), hashlib.sha256).hexdigest()[:32]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def bfl(run: Finished) -> Output:
    """`result.sample` is the picture; a moderated one has none."""
    document: Output = {"id": run.identifier("task"), "status": "Ready", "progress": None, "cost": None}
    if run.moderated:
        return document | {"status": "Content Moderated", "result": None}
    document["result"] = {
        "sample": run.link("sample.png"),
        "prompt": run.given.prompt,
        "seed": run.seed,
        "start_time": run.started,
        "end_time": run.finished,
        "duration": round(run.finished - run.started, 3),
        "cost": None,
    }
    return document


def recraft(run: Finished) -> Output:
    """`data[].url`, one for each picture."""
    count = 0 if run.moderated else run.given.count
    data = [
        {"image_id": run.identifier(f"image-{index}"), "url": run.link(f"generated-{index}.png")}
        for index in range(count)
    ]
    return {"created": int(run.finished), "credits": count, "data": data}


def openai_image(run: Finished) -> Output:
    """`data[].b64_json`: the pictures stand in the document itself."""
    count = 0 if run.moderated else run.given.count
    data = [{"b64_json": _base64(run.picture(index))} for index in range(count)]
    usage = {"input_tokens": 12, "output_tokens": 1056 * count, "total_tokens": 12 + 1056 * count}
    return {"created": int(run.finished), "data": data, "output_format": "png", "usage": usage}


def gemini(run: Finished) -> Output:
    """A text part beside an inline picture; a blocked prompt has no candidates at all."""
    usage: Output = {"promptTokenCount": 11, "totalTokenCount": 11}
    if run.moderated:
        return {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": usage}
    parts = [
        {"text": f"Here is a picture for: {run.given.prompt}"},
        {"inlineData": {"mimeType": "image/png", "data": _base64(run.picture())}},
    ]
    return {
        "candidates": [{"content": {"parts": parts, "role": "model"}, "finishReason": "STOP"}],
        "modelVersion": "gemini-3-pro-image",
        "responseId": run.identifier("response"),
        "usageMetadata": usage | {"candidatesTokenCount": 1290, "totalTokenCount": 1301},
    }


def kling(run: Finished) -> Output:
    """A video under `data.task_result.videos[].url`."""
    video = {"id": run.identifier("video"), "url": run.link("generated.mp4"), "duration": "5"}
    return {
        "code": 0,
        "message": "SUCCEED",
        "request_id": run.identifier("kling"),
        "data": {
            "task_id": run.identifier("task"),
            "task_status": "succeed",
            "task_status_msg": "",
            "task_result": {"videos": [] if run.moderated else [video]},
            "created_at": int(run.started * 1000),
            "updated_at": int(run.finished * 1000),
        },
    }


def heygen(run: Finished) -> Output:
    """Speech under `data.audio_url`."""
    data: Output = {"duration": 0.5, "request_id": run.identifier("speech")}
    if not run.moderated:
        data["audio_url"] = run.link("speech.wav")
    return {"data": data}


def meshy(run: Finished) -> Output:
    """A model keyed by its format, and a thumbnail beside it."""
    document: Output = {
        "id": run.identifier("task"),
        "type": "text-to-3d-preview",
        "status": "SUCCEEDED",
        "progress": 100,
        "prompt": run.given.prompt,
        "created_at": int(run.started * 1000),
        "started_at": int(run.started * 1000),
        "finished_at": int(run.finished * 1000),
        "model_urls": {},
    }
    if not run.moderated:
        document["model_urls"] = {"glb": run.link("model.glb")}
        document["thumbnail_url"] = run.link("thumbnail.png")
    return document


def claude(run: Finished) -> Output:
    """Text, and no file."""
    text = {"type": "text", "text": f"You asked: {run.given.prompt}"}
    return {
        "id": f"msg_{run.request_id.replace('-', '')[:24]}",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": [] if run.moderated else [text],
        "stop_reason": "refusal" if run.moderated else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 16, "output_tokens": 12},
    }


def fal_video(run: Finished) -> Output:
    """A data URI under a key named `url`."""
    if run.moderated:
        return {"video": None}
    uri = f"data:video/mp4;base64,{_base64(media.mp4(run.given.prompt + run.variation))}"
    return {"video": {"url": uri, "content_type": "video/mp4", "file_name": "output.mp4"}}


def fal_images(run: Finished) -> Output:
    """File objects with a declared type and no size."""
    count = 0 if run.moderated else run.given.count
    images = [
        {
            "url": run.link(f"output-{index}.png"),
            "content_type": "image/png",
            "file_name": f"output-{index}.png",
            "width": None,
            "height": None,
        }
        for index in range(count)
    ]
    return {"images": images, "created_at": _timestamp(run.finished)}


def _index(name: str) -> int:
    digits = name.rpartition(".")[0].rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0


_TYPES = {"png": "image/png", "mp4": "video/mp4", "wav": "audio/wav", "glb": "model/gltf-binary"}


def media_file(run: Finished, name: str) -> tuple[bytes, str] | None:
    """Bytes and type of a media file of a run; `None` for a name that no run has."""
    words = run.given.prompt + run.variation
    extension = name.rpartition(".")[2]
    makers: Mapping[str, Callable[[], bytes]] = {
        "png": lambda: run.picture(_index(name)),
        "mp4": lambda: media.mp4(words),
        "wav": lambda: media.wav(words),
        "glb": lambda: media.glb(words),
    }
    maker = makers.get(extension)
    return None if maker is None else (maker(), _TYPES[extension])
