// The network namespace here that stands for the one of a sandbox on another machine: with a
// loopback device and nothing else, so what is listened at in it is reached by this process alone.
// moorage-egress gets its listening sockets, as it gets those of a sandbox of this machine from its
// warden, and link connects to them for each connection there (base/wire/network_relay.h).
//
// The keeper makes it and keeps it; each worker enters it with one thread, which makes sockets.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "base/os/fd.h"
#include "base/wire/network_relay.h"

namespace moorage::link {

struct StandIn {
  base::Fd name_space;
  base::Fd udp;  // the resolver's sockets in it, which each line gets (base/wire/network_line.h)
  base::Fd tcp;
};
// As root. Throws what the kernel refuses.
StandIn make_stand_in();
// The first message on the line.
void send_resolver(int line, const StandIn& network);

// By a socket of InsideSockets::resolver_client(). Lost if there is no room, as datagrams may be.
void send_question(int client, std::string_view message, uint32_t mark);

class InsideSockets {
 public:
  // `limit` runs on the thread, once it has entered. Throws what entering, or that, throws.
  InsideSockets(base::Fd name_space, const std::function<void()>& limit);
  ~InsideSockets();
  InsideSockets(InsideSockets&&) = delete;

  // None of these blocks. Empty, with the error's number.
  struct Made {
    base::Fd socket;
    int error_number = 0;
  };
  Made listen(const base::RelayPlace& place);
  // Perhaps under way. `mark`: of the command that connects (base/wire/command_mark.h).
  Made connect(const base::RelayPlace& place, uint32_t mark);
  Made resolver_client();                     // UDP, for send_question()
  std::vector<base::RelayPlace> listeners();  // that anybody holds

 private:
  void run(const std::function<void()>& work);
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace moorage::link
