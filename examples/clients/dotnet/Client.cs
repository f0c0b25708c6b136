// Puts one message on a queue, or gets one, with AMQPNetLite. No test runs this one: the machines that
// test Towline have no .NET.
//
//   dotnet new console && dotnet add package AMQPNetLite, then this file in place of Program.cs
//   dotnet run -- amqp://127.0.0.1:5672 DEV.QUEUE.1 put hello
//   dotnet run -- amqp://127.0.0.1:5672 DEV.QUEUE.1 get
using Amqp;
using Amqp.Framing;
using Amqp.Sasl;

var connection = new Connection(new Address(args[0]), SaslProfile.Anonymous, null, null);
var session = new Session(connection);
if (args[2] == "put")
{
    var sender = new SenderLink(session, "put", args[1]);
    // Without Durable the message lives in memory only, unless the queue has DEFPSIST(YES). Send
    // returns when it is accepted.
    sender.Send(new Message(args[3]) { Header = new Header { Durable = true } });
}
else
{
    var receiver = new ReceiverLink(session, "get", args[1]);
    var message = receiver.Receive(TimeSpan.FromSeconds(30));
    Console.WriteLine(message?.Body);
    // Only now is it gone from the queue.
    if (message != null) receiver.Accept(message);
}
connection.Close();
