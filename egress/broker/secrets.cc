#include "egress/broker/secrets.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>

namespace moorage::egress {
namespace {

void wipe(std::string& secret) {
  OPENSSL_cleanse(secret.data(), secret.size());
  secret.clear();
}

}  // namespace

struct Secrets::Waiter {
  Then then;
};

struct Secrets::Entry {
  explicit Entry(base::Loop& loop) : patience(loop), freshness(loop) {}
  ~Entry() {
    wipe(secret);
    wipe(coming);
  }
  std::string secret;
  bool known = false;
  std::string coming;  // from the pipe, so far
  Fd pipe;
  std::unique_ptr<base::Watch> watch;
  std::list<std::weak_ptr<Waiter>> waiters;
  base::Timer patience;
  base::Timer freshness;
};

Secrets::Secrets(base::Loop& loop, Ask ask) : loop_(loop), ask_(std::move(ask)) {}
Secrets::~Secrets() = default;

Secrets::Entry& Secrets::entry(const std::string& credential) {
  auto& kept = entries_[credential];
  if (!kept) kept = std::make_unique<Entry>(loop_);
  return *kept;
}

Secrets::Ticket Secrets::get(const std::string& credential, Then then) {
  Entry& one = entry(credential);
  if (one.known) {
    then({one.secret, {}, false});
    return nullptr;
  }
  const bool first = one.waiters.empty();
  auto waiter = std::make_shared<Waiter>(Waiter{std::move(then)});
  one.waiters.push_back(waiter);
  if (first) {
    one.patience.start(kPatience, [this, credential] {
      fail(credential, "the credential " + credential + " did not come in time; try again");
    });
    ask_(credential);
  }
  return waiter;
}

void Secrets::forget(const std::string& credential) {
  Entry& one = entry(credential);
  one.known = false;
  wipe(one.secret);
}

void Secrets::forget_all() {
  for (const auto& [name, one] : entries_) forget(name);
}

std::vector<std::string> Secrets::wanted() const {
  std::vector<std::string> names;
  for (const auto& [name, one] : entries_) {
    if (!one->waiters.empty() && !one->pipe) names.push_back(name);
  }
  return names;
}

void Secrets::fill(const std::string& credential, Fd pipe) {
  Entry& one = entry(credential);
  fcntl(pipe.get(), F_SETFL, O_NONBLOCK);
  wipe(one.coming);
  one.watch.reset();
  one.pipe = std::move(pipe);
  one.watch = std::make_unique<base::Watch>(loop_, one.pipe.get(), EPOLLIN,
                                            [this, credential](uint32_t) { on_pipe(credential); });
}

void Secrets::on_pipe(const std::string& credential) {
  Entry& one = entry(credential);
  char bytes[4096];
  const ssize_t size = read(one.pipe.get(), bytes, sizeof bytes);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size > 0) one.coming.append(bytes, static_cast<size_t>(size));
  OPENSSL_cleanse(bytes, sizeof bytes);
  if (one.coming.size() > kMaxSecret)
    return fail(credential, "the secret of " + credential + " is longer than 64 KiB");
  if (size > 0) return;
  if (one.coming.ends_with('\n')) one.coming.pop_back();
  if (one.coming.ends_with('\r')) one.coming.pop_back();
  // Whoever writes it reports a failure in words, after its empty secret.
  if (one.coming.empty()) {
    one.watch.reset();
    one.pipe.reset();
    return;
  }
  if (one.coming.find_first_of("\r\n") != std::string::npos ||
      one.coming.find('\0') != std::string::npos)
    return fail(credential, "the secret of " + credential + " has more than one line");
  one.secret = std::move(one.coming);
  wipe(one.coming);
  one.known = true;
  one.freshness.start(kFresh, [this, credential] { forget(credential); });
  settle(credential, {one.secret, {}, true});
}

void Secrets::fail(const std::string& credential, const std::string& why) {
  settle(credential, {{}, why, true});
}

void Secrets::settle(const std::string& credential, const Found& found) {
  Entry& one = entry(credential);
  one.patience.stop();
  one.watch.reset();
  one.pipe.reset();
  wipe(one.coming);
  for (auto waiters = std::move(one.waiters); !waiters.empty(); waiters.pop_front()) {
    if (const auto waiter = waiters.front().lock()) waiter->then(found);
  }
}

}  // namespace moorage::egress
