#include "warden/late_output.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "warden/io_buffer.h"

namespace moorage::warden {

void LateOutput::take(Source source) {
  if (entries_.size() >= kMaxLate) {
    close(entries_.begin());
    drop(entries_.begin());
  }
  const auto entry = entries_.emplace(entries_.end(), loop_);
  entry->source = std::move(source);
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
  pause_or_resume(entry);
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
  OutputSink* sink = entry->source.sink.get();
  if (!sink) return;
  sink->write(from.kind, {io_buffer().data(), static_cast<size_t>(count)});
  if (!sink->ready()) pause_or_resume(entry);
}

void LateOutput::pause_or_resume(Place entry) {
  const OutputSink* sink = entry->source.sink.get();
  const bool ready = !sink || sink->ready();
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

void LateOutput::close(Place entry) {
  entry->closed = true;
  for (size_t i = 0; i < entry->watches.size(); ++i) {
    entry->watches[i].reset();
    entry->source.streams[i].fd.reset();
  }
  entry->source.session.reset();
  if (entry->source.sink) entry->source.sink->close();
}

void LateOutput::drop(Place entry) {
  entry->resume.stop();
  if (entry->source.sink) entry->source.sink->on_ready({});
  dropped_.splice(dropped_.end(), entries_, entry);
  sweep_.start(std::chrono::milliseconds(0), [this] { dropped_.clear(); });
}

}  // namespace moorage::warden
