#include "link/drivers/remote_fake.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <map>

#include "base/error.h"
#include "link/http/http_client.h"

namespace moorage::link_test {
namespace {

std::string read_line(int fd) {
  std::string line;
  for (char byte = 0; ::read(fd, &byte, 1) == 1 && byte != '\n';) line += byte;
  return line;
}

link::HttpResponse exchange(const std::string& url, const std::string& method,
                            const std::string& target, const std::string& body) {
  const link::Cancel cancel;
  link::HttpClient client(link::parse_origin(url, false), nullptr, cancel);
  return client.exchange({method, target, {}, body}, link::after(std::chrono::seconds(30)));
}

}  // namespace

RemoteFake::RemoteFake(std::string provider) : provider_(std::move(provider)) {
  base::Pipe input = base::make_pipe();
  base::Pipe output = base::make_pipe();
  const std::string program = REMOTE_FAKES "/fake_" + provider_ + ".py";
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(input.read_end.get(), 0);
    ::dup2(output.write_end.get(), 1);
    ::setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
    ::execl("/usr/bin/python3", "python3", program.c_str(), nullptr);
    ::_exit(127);
  }
  output.write_end.reset();
  input_ = std::move(input.write_end);
  const boost::json::value said = boost::json::parse(read_line(output.read_end.get()));
  url_ = std::string(said.at("url").as_string());
  key_ = std::string(said.at("api_key").as_string());
}

RemoteFake::~RemoteFake() {
  input_.reset();
  for (int i = 0; i < 300; ++i) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) return;
    ::usleep(100'000);
  }
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

const RemoteFake& RemoteFake::shared(const std::string& provider) {
  static std::map<std::string, RemoteFake> fakes;
  const RemoteFake& fake = fakes.try_emplace(provider, provider).first->second;
  exchange(fake.url_, "DELETE", "/_fake/faults", "");
  const auto driver = fake.driver();
  const link::Deadline deadline = link::after(std::chrono::seconds(60));
  for (const link::Machine& machine : driver->find({}, deadline)) driver->end(machine, deadline);
  return fake;
}

std::unique_ptr<link::Driver> RemoteFake::driver(const std::string& more,
                                                 const std::string& tree) const {
  std::string settings = "{\"api_url\":\"" + url_ + (provider_ == "daytona" ? "/api" : "") + "\"";
  if (provider_ == "e2b") settings += ",\"sandbox_url\":\"" + url_ + "\"";
  settings += (more.empty() ? "" : ",") + more + "}";
  return link::make_driver(provider_, {settings, key_, tree});
}

void RemoteFake::control(const std::string& what, const std::string& json) const {
  const link::HttpResponse response = exchange(url_, "POST", "/_fake/" + what, json);
  INFO(response.body);
  REQUIRE(response.status / 100 == 2);
}

std::string RemoteFake::requests() const {
  return exchange(url_, "GET", "/_fake/requests", "").body;
}

}  // namespace moorage::link_test
