// SPDX-License-Identifier: Apache-2.0
// in_openssl.h: keeps threads out of OpenSSL when the process leaves.
#pragma once

#include "ciuic/status.h"

namespace ciuic::security {

// Held while in a function of OpenSSL. OpenSSL frees what it needs in an exit handler, while other
// threads may still be in it: the process's exit waits for those, and later calls are refused.
class InOpenssl {
 public:
  InOpenssl();
  ~InOpenssl();
  InOpenssl(const InOpenssl&) = delete;
  InOpenssl& operator=(const InOpenssl&) = delete;

  bool allowed() const { return allowed_; }

  // To be called when OpenSSL has been started, and so has registered its handler: later ones run
  // before it. More calls than one do nothing.
  static void guard_exit();

 private:
  bool allowed_;
};

// What is said where it is not allowed.
Status process_exits();

}  // namespace ciuic::security
