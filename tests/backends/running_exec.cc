#include "running_exec.h"

#include <fcntl.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/os/files.h"
#include "sandbox_fixture.h"

namespace moorage::tests {

RunningExec::RunningExec(backends::Backend& backend, const std::string& sandbox,
                         const std::string& journal, const std::string& tag, const Command& command)
    : tag_(tag),
      client_(backend.endpoint(sandbox)),
      group_(backend.exec_group(sandbox, tag)),
      patience_(command.timeout_ms + 10'000) {
  const base::Fd append = base::open_file(journal, O_WRONLY | O_CREAT | O_APPEND, 0600);
  journal_ = base::open_file(journal, O_RDONLY);
  reader_ = base::JournalReader(journal_.get());
  const std::vector<base::Fd> join = group_->join_fds();
  const base::Fd kill = group_->kill_fd();

  backends::StartRequest request;
  request.tag = tag;
  request.argv = command.argv;
  request.environment = command.environment;
  request.directory = command.directory;
  request.user = command.user;
  request.timeout_ms = command.timeout_ms;
  request.input = command.input;
  request.terminal = command.terminal;
  request.journal_fd = append.get();
  request.kill_fd = kill.get();
  for (const base::Fd& fd : join) request.join_fds.push_back(fd.get());
  client_.start(request, patient(std::chrono::seconds(10)));
}

RunningExec::~RunningExec() {
  if (!group_) return;
  try {
    group_->kill();
    within(std::chrono::seconds(10), [&] { return group_->empty(); });
    group_->remove();
  } catch (const std::exception&) {
    // The sandbox is gone, and so is the group.
  }
}

void RunningExec::send(const std::string& input) {
  sent_ = client_.send_input(tag_, sent_, input, patient(std::chrono::seconds(20))).accepted;
}

void RunningExec::read() {
  namespace json = boost::json;
  while (auto frame = reader_.next()) {
    const base::FrameKind kind = frame->header.kind;
    if (base::is_output(kind)) outcome_.output += frame->payload;
    if (kind == base::FrameKind::standard_error) outcome_.error += frame->payload;
    if (kind == base::FrameKind::terminal) outcome_.terminal += frame->payload;
    if (kind != base::FrameKind::end) continue;
    const json::object end = json::parse(frame->payload).as_object();
    outcome_.kind = json::value_to<std::string>(end.at("kind"));
    if (end.contains("code")) outcome_.code = json::value_to<int>(end.at("code"));
    if (end.contains("signal")) outcome_.signal = json::value_to<int>(end.at("signal"));
    if (end.contains("error")) outcome_.text = json::value_to<std::string>(end.at("error"));
  }
}

bool RunningExec::ended() {
  read();
  return !outcome_.kind.empty();
}

const std::string& RunningExec::output() {
  read();
  return outcome_.output;
}

bool RunningExec::wait_for(const std::string& text, std::chrono::milliseconds deadline) {
  return within(deadline, [&] { return output().find(text) != std::string::npos; });
}

Outcome RunningExec::finish() {
  if (!within(patience_, [&] { return ended(); })) {
    throw std::runtime_error("the exec did not end; it wrote: " + outcome_.output);
  }
  outcome_.oom_kills = group_->oom_kills();
  group_->kill();
  REQUIRE(within(std::chrono::seconds(10), [&] { return group_->empty(); }));
  group_->remove();
  group_.reset();
  return outcome_;
}

}  // namespace moorage::tests
