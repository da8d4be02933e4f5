// The resolver of one sandbox, as sockets: takes questions over UDP and TCP (RFC 7766) and sends
// the answers, which may come later. What to answer is the owner's business.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "base/os/event_loop.h"
#include "base/os/fd.h"
#include "egress/dns_message.h"
#include "egress/socket_owner.h"

namespace moorage::egress {

class DnsService {
 public:
  struct Asker {
    SocketEnd end;
    bool tcp = false;
  };
  // May be called late, or never; does nothing once the asker or the service is gone.
  using Reply = std::function<void(const std::string& message)>;
  using Answer = std::function<void(const DnsQuestion&, const Asker&, Reply)>;

  DnsService(base::Loop& loop, Fd udp, Fd tcp, Answer answer);
  ~DnsService();
  DnsService(const DnsService&) = delete;
  DnsService& operator=(const DnsService&) = delete;

  static constexpr size_t kMaxTcpClients = 32;
  static constexpr std::chrono::milliseconds kPatienceTcp{10'000};  // for the next question

 private:
  struct TcpClient;
  void read_datagrams();
  void accept_client();
  void read_client(const std::shared_ptr<TcpClient>& client);
  void take_questions(const std::shared_ptr<TcpClient>& client);
  static void send_answers(TcpClient& client);
  void drop(const std::shared_ptr<TcpClient>& client);

  base::Loop& loop_;
  std::shared_ptr<Fd> udp_;  // shared with nobody for long: replies hold it weakly
  Fd tcp_;
  Answer answer_;
  std::list<std::shared_ptr<TcpClient>> clients_;
  base::Watch udp_watch_;
  base::Watch tcp_watch_;
};

}  // namespace moorage::egress
