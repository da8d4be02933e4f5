#include "warden/output/late_output.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

namespace moorage::warden {

void LateOutput::take(Source source) {
  const bool drained = !source.sink;
  if (!drained && recorded_.size() >= kMaxLate) stop_recording(recorded_.begin());
  auto& entries = drained ? drained_ : recorded_;
  const auto entry = entries.emplace(entries.end(), loop_);
  entry->source = std::move(source);
  entry->drained = drained;
  if (entry->source.sink) {
    entry->source.sink->on_ready([this, entry] {
      entry->resume.start(std::chrono::milliseconds(0), [this, entry] { pause_or_resume(entry); });
    });
  }
  for (size_t i = 0; i < entry->watches.size(); ++i) {
    const int fd = entry->source.streams[i].fd.get();
    if (fd < 0) continue;
    entry->watches[i] =
        std::make_unique<Watch>(loop_, fd, EPOLLIN, [this, entry, i](uint32_t) { pump(entry, i); });
  }
  keep_few_drained();
  pause_or_resume(entry);
}

bool LateOutput::empty() const {
  return recorded_.empty() &&
         std::none_of(drained_.begin(), drained_.end(),
                      [](const Entry& entry) { return entry.source.sink != nullptr; });
}

void LateOutput::pump(Place entry, size_t stream) {
  Stream& from = entry->source.streams[stream];
  const ssize_t count = ::read(from.fd.get(), io_buffer().data(), io_buffer().size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    entry->watches[stream].reset();
    from.fd.reset();
    return pause_or_resume(entry);
  }
  if (entry->drained) return;
  OutputSink& sink = *entry->source.sink;
  sink.write(from.kind, {io_buffer().data(), static_cast<size_t>(count)});
  if (!sink.ready()) pause_or_resume(entry);
}

void LateOutput::pause_or_resume(Place entry) {
  auto& sink = entry->source.sink;
  if (entry->drained && sink && sink->settled()) sink.reset();
  const bool ready = entry->drained || sink->ready();
  bool open = false;
  for (const auto& watch : entry->watches) {
    if (!watch) continue;
    open = true;
    watch->set_events(ready ? uint32_t{EPOLLIN} : 0u);
  }
  if (open) return;
  if (!entry->closed) close(entry);
  if (!sink || sink->settled()) drop(entry);
}

// If the sink accepts nothing now, the bytes in the pipes are past the mark too.
void LateOutput::stop_recording(Place entry) {
  OutputSink& sink = *entry->source.sink;
  for (Stream& stream : entry->source.streams) {
    int waiting = 0;
    if (!stream.fd || ::ioctl(stream.fd.get(), FIONREAD, &waiting) != 0) continue;
    for (auto left = static_cast<size_t>(std::max(waiting, 0)); left > 0 && sink.ready();) {
      const ssize_t count =
          ::read(stream.fd.get(), io_buffer().data(), std::min(left, io_buffer().size()));
      if (count <= 0) break;
      sink.write(stream.kind, {io_buffer().data(), static_cast<size_t>(count)});
      left -= static_cast<size_t>(count);
    }
  }
  if (!entry->closed) sink.stop();  // otherwise its writers are gone: no more can come
  entry->drained = true;
  drained_.splice(drained_.end(), recorded_, entry);
  pause_or_resume(entry);
}

void LateOutput::keep_few_drained() {
  auto open = static_cast<size_t>(std::count_if(drained_.begin(), drained_.end(),
                                                [](const Entry& entry) { return !entry.closed; }));
  for (auto next = drained_.begin(); next != drained_.end() && open > kMaxDrained;) {
    const auto entry = next++;
    if (entry->closed) continue;
    close(entry);
    --open;
    pause_or_resume(entry);
  }
}

void LateOutput::close(Place entry) {
  entry->closed = true;
  for (size_t i = 0; i < entry->watches.size(); ++i) {
    entry->watches[i].reset();
    entry->source.streams[i].fd.reset();
  }
  entry->source.session.reset();
  if (entry->source.sink && !entry->drained) entry->source.sink->close();
}

void LateOutput::drop(Place entry) {
  entry->resume.stop();
  if (entry->source.sink) entry->source.sink->on_ready({});
  dropped_.splice(dropped_.end(), entry->drained ? drained_ : recorded_, entry);
  sweep_.start(std::chrono::milliseconds(0), [this] { dropped_.clear(); });
}

}  // namespace moorage::warden
