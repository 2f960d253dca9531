"""A model of one endpoint of a folder: which builds may answer. The machine is held to it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Way:
    """A route: its champion, a challenger with its share, and a shadow, all by version."""

    champion: str
    challenger: str = ""
    share: float = 0.0
    shadow: str = ""

    @property
    def named(self) -> set[str]:
        return {self.champion, self.challenger, self.shadow} - {""}

    def may(self) -> set[str]:
        """The versions that may answer; the challenger all that have a key, at 100 %."""
        sure = {self.challenger} if self.share == 100 else {self.champion}
        return sure if self.share in {0, 100} else {self.champion, self.challenger}


@dataclass
class World:
    """Builds are told by the numbers that they add; None is a damaged file."""

    files: dict[str, float | None] = field(default_factory=dict)
    live: dict[str, float] = field(default_factory=dict)
    ways: list[Way] = field(default_factory=list)  # the last one is in force; rollback takes it
    current: str = ""  # answers where no way is given
    unloaded: bool = False
    muted: bool = False
    #: True if the last way was given by hand, while a rollout had given it or not.
    is_by_hand: bool = False
    #: A rollout: its challenger, its step, the way before it, and the builds that it judges.
    rollout: tuple[str, int, Way, dict[str, float]] | None = None

    def may_answer(self) -> set[float | None]:
        """What may be answered; None where nothing is registered, or the route is not known."""
        if self.unloaded or self.muted or not self.live:
            return {None}
        return {self.live[each] for each in (self.ways[-1].may() if self.ways else {self.current})}

    def is_lost(self, version: str) -> bool:
        """Whether a restart would not bring a version back as it is."""
        return self.files.get(version) != self.live.get(version)

    def refuses(self, way: Way) -> bool:
        """Whether a way gives a part to a version that a restart would not bring back."""
        known = set(self.ways[-1].named) if self.ways else set()
        if self.ways and way.champion != self.ways[-1].champion:
            known.discard(way.champion)
        return any(self.is_lost(each) for each in way.named - known)

    def follow(self, *, latest: bool) -> None:
        """A look at the folder; `latest` if something happened, so that the last one answers."""
        if not self.live and not self.unloaded:
            self.come_up()
        elif not self.unloaded:
            here = set(self.files) & set(self.live)
            named = self.ways[-1].named if self.ways and not self.muted else ()
            self.live = {v: b for v, b in self.live.items() if v in self.files or v in named}
            if not here:  # all files of what is served have gone
                self.live = {}
            self.live |= {v: b for v, b in self.files.items() if b is not None}
            if self.muted:
                self.take_up()
        if self.live and (latest or self.current not in self.live):
            self.current = max(self.live)

    def come_up(self) -> None:
        """A process starts with the folder, or the model is loaded by name."""
        self.live = {v: b for v, b in self.files.items() if b is not None}
        self.unloaded, self.current = False, max(self.live, default="")
        if self.live and self.ways:
            self.take_up()

    def take_up(self) -> None:
        """The route is read; a rollout goes on, or ends where it cannot."""
        self.muted = not self.ways[-1].named <= set(self.live)
        if self.rollout and self.rollout[2].named <= set(self.live):
            self.muted = False
            if any(self.live.get(v) != build for v, build in self.rollout[3].items()):
                self.end_rollout()

    def end_rollout(self) -> None:
        """The rollout ends, and all requests are the champion's."""
        assert self.rollout is not None
        if self.ways[-1] != self.rollout[2]:
            self.ways.append(self.rollout[2])
        self.rollout = None
