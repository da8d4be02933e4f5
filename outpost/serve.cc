#include "outpost/serve.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/error.h"
#include "base/os/files.h"
#include "base/wire/outpost_requests.h"
#include "base/wire/protocol.h"
#include "outpost/changes.h"
#include "outpost/programs.h"
#include "outpost/request_fields.h"

namespace moorage::outpost {
namespace {

namespace json = boost::json;
namespace requests = base::outpost;
using std::chrono::milliseconds;

constexpr size_t kMaxPeers = 8;
constexpr size_t kMaxJobs = 64;
constexpr int64_t kGreetingMs = 20'000;
constexpr int64_t kIdleMs = 60'000;
constexpr auto kLook = milliseconds(200);
constexpr auto kJobDeadline = milliseconds(1'800'000);

[[noreturn]] void refuse_given_up() {
  throw Error(Code::conflict,
              "the workspace of this sandbox has gone on elsewhere: it may run nothing more here",
              "fetch what changed here, or remove it");
}

}  // namespace

Server::Server(Options options)
    : options_(std::move(options)),
      directory_(options_.directory),
      sandbox_(directory_, options_.name),
      needed_ms_(base::monotonic_ms()),
      network_(loop_, sandbox_.warden_socket()),
      look_(loop_),
      sweep_(loop_) {
  sandbox_.make();
  if (!sandbox_.generation()) sandbox_.set_generation(options_.generation);
  write_own_pid(sandbox_.path() + "/serve.pid");
  notice_process();
  listener_watch_ = std::make_unique<base::Watch>(loop_, options_.listener.get(), EPOLLIN,
                                                  [this](uint32_t) { accept_one(); });
  look_.start(kLook, [this] { look(); });
}

void Server::run() { loop_.run(); }

void Server::accept_one() {
  Fd socket(accept4(options_.listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return;
  if (peers_.size() >= kMaxPeers || destroyed_) return;  // closes it
  Peer& peer = peers_.emplace_back();
  peer.since_ms = base::monotonic_ms();
  peer.session = std::make_unique<Session>(
      loop_, std::move(socket),
      [this, &peer](std::string_view request, Wire wire) { return open(peer, request, wire); },
      [this, &peer] { forget(&peer); });
}

void Server::forget(const Peer* peer) {
  needed_ms_ = base::monotonic_ms();
  peers_.remove_if([peer](const Peer& one) { return &one == peer; });
  if (destroyed_ && peers_.empty()) finish();
}

std::unique_ptr<Channel> Server::open(Peer& peer, std::string_view text, Wire wire) {
  using Handler = std::unique_ptr<Channel> (Server::*)(const json::object&, Wire);
  static constexpr std::pair<std::string_view, Handler> kHandlers[] = {
      {requests::kHasTree, &Server::has_tree},   {requests::kPutTree, &Server::put_tree},
      {requests::kTakeTree, &Server::take_tree}, {requests::kCheckTree, &Server::check_tree},
      {requests::kPrepare, &Server::prepare},    {requests::kApply, &Server::apply},
      {requests::kStart, &Server::start},        {requests::kHttp, &Server::http},
      {requests::kJournal, &Server::journal},    {requests::kSync, &Server::sync},
      {requests::kNetwork, &Server::network},    {requests::kAccept, &Server::accept},
      {requests::kStop, &Server::stop},          {requests::kDestroy, &Server::destroy}};
  const json::object request = parse_request(text);
  const std::string what = text_in(request, "what");
  if (what == requests::kHello) return hello(peer, request, wire);
  if (!peer.greeted) throw Error(Code::permission_denied, "the first request must be a hello");
  if (destroyed_) throw Error(Code::not_found, "this sandbox was destroyed");
  const bool ends =
      what == requests::kSync || what == requests::kStop || what == requests::kDestroy;
  if (!ends && sandbox_.given_up()) refuse_given_up();
  for (const auto& [name, handler] : kHandlers) {
    if (name == what) return (this->*handler)(request, wire);
  }
  throw Error(Code::unsupported, "unknown request '" + what.substr(0, 64) + "'");
}

void Server::require_generation(uint64_t generation) const {
  const uint64_t ours = sandbox_.generation().value_or(0);
  if (generation == ours) return;
  throw Error(Code::conflict, "this sandbox has generation " + std::to_string(ours) +
                                  ", and the request generation " + std::to_string(generation));
}

// A link that was cut off may still be connected; its successor takes over.
std::unique_ptr<Channel> Server::hello(Peer& peer, const json::object& request, Wire wire) {
  require_generation(number_in(request, "generation"));
  const bool give_up = flag_in(request, "give_up");
  if (!give_up && sandbox_.given_up()) refuse_given_up();
  if (!give_up) sandbox_.require_same_boot();
  const json::value* protocol = request.if_contains("protocol");
  if (!protocol || !protocol->is_object())
    throw Error(Code::invalid_argument, "protocol must be an object");
  const json::object& range = protocol->get_object();
  const base::Protocols theirs{static_cast<int>(number_in(range, "oldest")),
                               static_cast<int>(number_in(range, "newest"))};
  if (theirs.oldest > 1 || theirs.newest < 1)
    throw Error(Code::unsupported, "this outpost speaks protocol 1; put the matching one there");
  if (give_up) sandbox_.give_up();
  peer.greeted = true;
  for (Peer& other : peers_) {
    if (&other != &peer) other.session->close_soon();
  }
  const bool resumed = flag_in(request, "resumed");
  if (!abilities_.empty() && !resumed) return text_answer(wire, greeting());
  const uint64_t acknowledged = resumed ? number_in(request, "acknowledged") : 0;
  auto look = [this, resumed, acknowledged, known = abilities_] {
    if (resumed) sandbox_.compare(acknowledged);
    return known.empty() ? sandbox_.abilities() : known;
  };
  return enqueue_for(wire,
                     {{},
                      look,
                      {},
                      [this](Wire to, const std::string&) { return text_answer(to, greeting()); },
                      [this](const std::string& answer) { abilities_ = answer; }});
}

std::string Server::greeting() const {
  json::object answer = json::parse(abilities_).as_object();
  json::parse_options any_bytes;  // of file names
  any_bytes.allow_invalid_utf8 = true;
  answer["lost"] = json::parse(sandbox_.lost(), {}, any_bytes);
  answer["protocol"] = json::object{{"oldest", 1}, {"newest", 1}};
  answer["release"] = base::kRelease;
  answer["prepared"] = living_;
  answer["started"] = runs();
  answer["has_files"] = sandbox_.has_files();
  const Acknowledged acknowledged = last_acknowledged(sandbox_.path());
  answer["acknowledged"] = acknowledged.pack;
  answer["next_was_sent"] = acknowledged.next_was_sent;
  return json::serialize(answer);
}

std::unique_ptr<Channel> Server::enqueue_for(Wire wire, Job job) {
  auto channel = std::make_unique<Later>(wire);
  job.channel = channel->self();
  enqueue(std::move(job));
  return channel;
}

void Server::enqueue(Job job) {
  if (jobs_.size() >= kMaxJobs)
    throw Error(Code::resource_exhausted, "64 requests wait for this sandbox already");
  jobs_.push_back(std::move(job));
  if (!running_) next_job();
}

void Server::next_job() {
  while (!jobs_.empty()) {
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    if (job.channel.expired()) continue;
    running_ = std::move(job);
    if (running_->on_begin) running_->on_begin();
    Operation::Options options{{}, kJobDeadline};
    if (running_->fd) options.keep_fds.push_back(running_->fd->get());
    try {
      operation_ = std::make_unique<Operation>(
          loop_, running_->work, options,
          [this](Operation::Outcome outcome) { job_done(std::move(outcome)); });
      return;
    } catch (const Error& error) {
      if (const auto channel = running_->channel.lock()) channel->fail(error);
      running_.reset();
    }
  }
}

void Server::job_done(Operation::Outcome outcome) {
  ended_.push_back(std::move(operation_));
  sweep_.start(milliseconds(0), [this] {
    ended_.clear();
    if (!running_) next_job();
  });
  const Job job = std::move(*running_);
  running_.reset();
  notice_process();
  if (!outcome.error && job.on_success) job.on_success(outcome.answer);
  const auto channel = job.channel.lock();
  if (!channel) return;
  try {
    if (outcome.error) return channel->fail(*outcome.error);
    channel->answer(job.make_answer(channel->wire(), outcome.answer));
  } catch (const Error& error) {
    channel->fail(error);
  }
}

void Server::notice_process() {
  process_ = living(sandbox_.path());
  living_ = process_.has_value();
}

void Server::look() {
  reap_operations();
  const int64_t now = base::monotonic_ms();
  living_ = process_ && base::process_alive(process_->identity);
  for (Peer& peer : peers_) {
    if (!peer.greeted && now - peer.since_ms > kGreetingMs) peer.session->close_soon();
  }
  if (living_ || running_ || !peers_.empty() || !aside_.empty()) needed_ms_ = now;
  if (now - needed_ms_ > kIdleMs) return loop_.stop();
  look_.start(kLook, [this] { look(); });
}

// The answer has been sent by now. The lock is last: who waits for it finds nothing.
void Server::finish() {
  for (const char* name : {"outpost.sock", "serve.pid", "serve.log", "ops.lock", "serve.lock"})
    unlink((sandbox_.path() + "/" + name).c_str());
  rmdir(sandbox_.path().c_str());
  loop_.stop();
}

}  // namespace moorage::outpost
