#include "warden/abandoned_output.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "warden/io_buffer.h"

namespace moorage::warden {

void AbandonedOutput::take(base::Fd fd) {
  if (entries_.size() >= kMaxAbandoned) entries_.pop_front();
  auto entry = entries_.emplace(entries_.end());
  entry->fd = std::move(fd);
  entry->watch = std::make_unique<Watch>(loop_, entry->fd.get(), EPOLLIN,
                                         [this, entry](uint32_t) { drop_some(entry); });
}

void AbandonedOutput::drop_some(std::list<Entry>::iterator entry) {
  ssize_t count = ::read(entry->fd.get(), io_buffer().data(), io_buffer().size());
  if (count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR))) return;
  entries_.erase(entry);
}

}  // namespace moorage::warden
