// The warden with three clients: HTTP, envelopes, JSON, the verbs, up to the fork
// (warden_spawn.cc). An input is the clients' bytes, with events in between: a byte 0xff and a
// letter.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/os/fd.h"
#include "base/wire/bootstrap.h"
#include "fuzz.h"
#include "warden/io/server.h"
#include "warden/process_service.h"
#include "warden_spawn.h"

namespace moorage {
namespace {

constexpr size_t kClients = 3;
constexpr int kRounds = 6;  // of the loop, for all consequences of an event

class Scene {
 public:
  Scene()
      : service_(loop_, {},
                 [](auto, const auto& asked) { asked->respond(200, "application/json", "{}"); }),
        server_(loop_, listener(), [this](const auto& connection, warden::HttpRequest&& request) {
          service_.handle(connection, std::move(request));
        }) {}
  ~Scene() { fuzz::commands().clear(); }

  void play(std::string_view input) {
    input_ = input;
    next_.start(std::chrono::milliseconds(0), [this] { tick(); });
    loop_.run();
    fuzz::require(server_.connections() == 0, "a client that has gone is noticed");
  }

 private:
  // One event, then the loop's rounds: a timer of 0 ms fires in the next one.
  void tick() {
    if (++round_ % kRounds == 0 && !go_on()) return loop_.stop();
    next_.start(std::chrono::milliseconds(0), [this] { tick(); });
  }

  bool go_on() {
    if (over_) return false;
    if (input_.empty()) {
      for (base::Fd& client : clients_) client.reset();
      over_ = true;
    } else if (input_.front() != '\xff') {
      const std::string_view bytes = input_.substr(0, input_.find('\xff'));
      say(bytes);
      input_.remove_prefix(bytes.size());
    } else {
      if (input_.size() > 1) happen(input_[1]);
      input_.remove_prefix(std::min<size_t>(input_.size(), 2));
    }
    return true;
  }

  base::Fd listener() {
    base::Fd made = base::listen_unix(path_, 0600);
    base::check_listener(made);
    return made;
  }

  void say(std::string_view bytes) {
    base::Fd& client = clients_[client_];
    if (!client) client = base::connect_unix(path_, 1000);
    send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  void happen(char what) {
    if (what >= '0' && what < static_cast<char>('0' + kClients))
      client_ = static_cast<size_t>(what - '0');
    if (what == 'c') clients_[client_].reset();
    if (what == 'h' && clients_[client_]) shutdown(clients_[client_].get(), SHUT_WR);
    if (!fuzz::commands().empty()) happen_to(fuzz::commands().back(), what);
  }

  void happen_to(fuzz::Command& command, char what) {
    std::array<char, 64 << 10> bytes{};
    if (what == 'o') (void)!write(command.output.get(), bytes.data(), 100);
    if (what == 'O') (void)!write(command.output.get(), bytes.data(), bytes.size());
    if (what == 'e') (void)!write(command.error.get(), "error\n", 6);
    if (what == 'i') (void)!read(command.input.get(), bytes.data(), bytes.size());
    if (what == 'x') command.input.reset();
    const bool dies = what == 'd' || what == 'k';
    if (!dies) return;
    const pid_t child = command.child;
    fuzz::commands().pop_back();
    service_.process_ended(child + 1, what == 'k' ? SIGKILL : 0, {});
    service_.process_ended(child, 0, {});
  }

  const std::string path_ = fuzz::scratch_directory() + "/warden.sock";
  warden::Loop loop_;
  warden::ProcessService service_;
  warden::Server server_;
  std::array<base::Fd, kClients> clients_;
  size_t client_ = 0;
  std::string_view input_;
  int round_ = 0;
  bool over_ = false;
  warden::Timer next_{loop_};
};

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  Scene().play({reinterpret_cast<const char*>(data), size});
  return 0;
}
