#include "egress/siphon.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace moorage::egress {
namespace {

constexpr unsigned kFlags = SPLICE_F_MOVE | SPLICE_F_NONBLOCK;
int in_use = 0;

}  // namespace

Siphon::Siphon(base::Pipe pipe) : pipe_(std::move(pipe)) { ++in_use; }
Siphon::~Siphon() { --in_use; }

std::unique_ptr<Siphon> Siphon::make() {
  int ends[2];
  if (in_use >= kMost || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return nullptr;
  base::Pipe pipe{Fd(ends[0]), Fd(ends[1])};
  if (fcntl(pipe.write_end.get(), F_SETPIPE_SZ, kSize) < kSize) return nullptr;
  return std::unique_ptr<Siphon>(new Siphon(std::move(pipe)));
}

ssize_t Siphon::fill(const Fd& from) {
  const ssize_t size = splice(from.get(), nullptr, pipe_.write_end.get(), nullptr, kSize, kFlags);
  if (size > 0) held_ += static_cast<size_t>(size);
  return size;
}

bool Siphon::drain(const Fd& to) {
  while (held_ > 0) {
    const ssize_t size = splice(pipe_.read_end.get(), nullptr, to.get(), nullptr, held_, kFlags);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    held_ -= static_cast<size_t>(size);
  }
  return true;
}

}  // namespace moorage::egress
